"""How requests are divided."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest

from allranks.serve.balance import Deployment, NoReplica, NoTurn, Weights
from allranks.serve.table import Backend, Route, Site, load, pack


@pytest.mark.parametrize("percents", [{"a": 90, "b": 10}, {"a": 33, "b": 33, "c": 34}, {"a": 100}])
def test_weights_hold_exactly_over_each_hundred(percents):
    weights = Weights(percents)
    chosen = [weights.next() for _ in range(1000)]
    for start in range(0, 900, 7):
        assert Counter(chosen[start : start + 100]) == percents


def test_no_traffic():
    assert Weights({"a": 0}).next() is None


def test_a_table_comes_as_it_was_sent():
    route = Route("blue", (Backend("j", "unix:x", True),), queue_wait=2.0)
    sites = [Site("e", None, {"blue": 100}, {}, (route,)), Site("f", ("a",), {}, {}, ())]
    assert load(pack(sites)) == sites


def deployment(count: int, **settings: float) -> Deployment:
    backends = tuple(Backend(f"j{n}", f"unix:{n}") for n in range(count))
    made = Deployment("e", Route("d", backends, **settings), Path("/nowhere"))
    for worker in made.workers.values():
        worker.ready = True
    return made


def test_the_least_loaded_replica_and_a_turn_that_comes_free():
    async def scenario() -> None:
        made = deployment(2, queue_wait=5.0)
        first, second = await made.take(), await made.take()
        assert {first.backend.job, second.backend.job} == {"j0", "j1"}
        third = asyncio.create_task(made.take())
        await asyncio.sleep(0)
        assert made.waiting == 1
        made.give(second)
        assert await third is second

    asyncio.run(scenario())


def test_a_wait_that_is_too_long_and_no_replica():
    async def scenario() -> None:
        made = deployment(1, queue_wait=0.01)
        await made.take()
        with pytest.raises(NoTurn):
            await made.take()
        assert made.waiting == 0
        made.change(made.route._replace(backends=()))
        with pytest.raises(NoReplica):
            await made.take()

    asyncio.run(scenario())


def test_a_wait_for_the_first_replica():
    async def scenario() -> None:
        made = deployment(0, cold=0.01)
        came = made.come()
        with pytest.raises(NoReplica):
            await made.take()
        made.change(made.route._replace(cold=60.0))
        waits = asyncio.create_task(made.take())
        await asyncio.sleep(0)
        made.change(made.route._replace(backends=(Backend("j", "unix:j"),)))
        made.workers["j"].ready = True
        made.wake()
        assert (await waits).backend.job == "j"
        busy = made.busy
        assert busy >= 0.01, "one that waits is load, too"
        made.leave(came)
        assert made.busy == made.busy >= busy

    asyncio.run(scenario())


def test_latencies_are_of_the_last_minute():
    made, now = deployment(1), time.monotonic()
    made._times.extend([(now - 61.0, 5.0), (now - 50.0, 3.0), (now, 1.0)])
    assert made.times() == [1.0, 3.0]
