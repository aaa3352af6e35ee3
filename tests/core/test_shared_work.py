"""Units of work that several threads share."""

import threading

import pytest

from allranks.core.shared_work import Shared
from allranks.errors import ServerError


def test_a_worker_that_cannot_be_made_fails_the_work():
    def worker():
        raise ServerError("no connection", hint="later")

    with pytest.raises(ServerError):
        Shared([1, 2], threading.Event()).run(worker, lambda: None)
