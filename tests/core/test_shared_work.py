"""Units of work that several threads share."""

import threading

import pytest

from allranks.core.shared_work import Shared, large_first, packs
from allranks.errors import ServerError


def test_a_worker_that_cannot_be_made_fails_the_work():
    def worker():
        raise ServerError("no connection", hint="later")

    with pytest.raises(ServerError):
        Shared([1, 2], threading.Event()).run(worker, lambda: None)


def test_what_travels_together():
    sizes = [0] * 300 + [1 << 20] * 5 + [(1 << 20) + 1, 1 << 30]
    units = list(large_first(sizes, int, 1 << 20, 2 << 20, 128))
    assert [len(unit) for unit in units] == [1, 1, 128, 128, 46, 2, 1]
    assert [unit[0] for unit in units[:2]] == [1 << 30, (1 << 20) + 1]
    assert sorted(each for unit in units for each in unit) == sizes
    assert list(packs([3, 9, 1, 1], int, 4, 9)) == [[3], [9], [1, 1]]
    assert list(packs([], int, 4, 9)) == []
