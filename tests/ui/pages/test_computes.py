"""How hosts are used: the parts add up, whatever jobs ask for."""

from __future__ import annotations

from typing import Any, cast

import pytest

from allranks.api.computes import HostAnswer
from allranks.ui.pages.computes import Use, summed, use


def host(total: int, free: int | None, *requested: int) -> HostAnswer:
    runs = [
        {"job": "j", "nodes": [0], "ranks": 1, "cpus": each, "gpus": each} for each in requested
    ]
    shown: dict[str, Any] = {"cpus": total, "free_cpus": free, "gpus": total, "free_gpus": free}
    return cast("HostAnswer", {**shown, "runs": runs})


@pytest.mark.parametrize(
    ("requested", "ours", "others"),
    [((), 0, 6), ((4,), 4, 2), ((4, 2), 6, 0), ((4, 12), 6, 0)],
)
def test_parts_add_up(requested: tuple[int, ...], ours: float, others: float) -> None:
    found = use(host(8, 2, *requested), "gpus")
    assert found == Use(ours, others, 2, 8, sum(requested))
    assert found.ours + found.others + found.free == found.total


def test_what_is_not_known_is_not_summed() -> None:
    assert use(host(8, None, 4), "cpus") is None
    assert use(host(0, 0), "gpus") is None
    two = [use(host(8, 2, 4), "cpus"), None, use(host(4, 4), "cpus")]
    assert summed(two) == Use(4, 2, 6, 12, 4)
    assert summed([None]) is None
