"""Agents are not blamed for a server that is late."""

import asyncio
import time

import pytest

from allranks import clock
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.server.loop.heartbeats import Heartbeats
from allranks.store.database import open_database
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from tests.support import until

LEASE = 0.8


@pytest.fixture
def row(tmp_path) -> JobRow:
    engine = open_database(tmp_path / "db")
    task = Task("j", "ex", "true", 2)
    made = Records(engine).create({}, Plan(Gang("j.1", 2, ("a",)), task, Rules(2), "fake"))
    engine.dispose()
    return made


async def turns(heartbeats: Heartbeats, seconds: float, late: float, calls: bool = False) -> None:
    """An event loop whose turns take ``late`` seconds; with ``calls`` node 0 calls in each."""
    watch = asyncio.create_task(heartbeats.watch())
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await asyncio.sleep(0)
        time.sleep(late)
        if calls:
            heartbeats.record("j", 1, 0)
    watch.cancel()


@pytest.mark.medium
def test_an_agent_is_silent_after_a_lease(row):
    heartbeats = Heartbeats(LEASE)
    heartbeats.record("j", 1, 1)
    asyncio.run(turns(heartbeats, LEASE * 0.7, 0.005, calls=True))
    assert heartbeats.silent(row) == frozenset()
    asyncio.run(turns(heartbeats, LEASE * 0.7, 0.005, calls=True))
    assert heartbeats.silent(row) == {1}
    assert 0 < time.time() - heartbeats.last_seen(row, 1)["heard"] < LEASE * 3


@pytest.mark.medium
def test_turns_that_take_long_do_not_count_in_full(row):
    """Each is shorter than a pause, and together they are longer than a lease."""
    heartbeats = Heartbeats(LEASE)
    heartbeats.record_all(row)
    asyncio.run(turns(heartbeats, LEASE * 1.4, LEASE * 0.45))
    assert heartbeats.silent(row) == frozenset()


@pytest.mark.medium
def test_after_a_sleep_of_the_machine_agents_have_time_to_call_again(
    row, monkeypatch: pytest.MonkeyPatch
):
    """Sleep passes in the time since boot alone; its network comes back later than the machine."""
    slept, real = [0.0], clock.uptime
    monkeypatch.setattr(clock, "uptime", lambda: real() + slept[0])
    heartbeats = Heartbeats(LEASE)
    heartbeats.record_all(row)
    asyncio.run(turns(heartbeats, LEASE * 0.5, 0.005))
    slept[0] = 8 * 3600.0
    assert heartbeats.silent(row) == frozenset()
    asyncio.run(turns(heartbeats, LEASE * 2, 0.005, calls=True))
    assert heartbeats.silent(row) == frozenset()
    assert clock.now() - heartbeats.started_at() < 3600.0
    until(
        lambda: asyncio.run(turns(heartbeats, LEASE, 0.005, calls=True)) or heartbeats.silent(row)
    )
    assert heartbeats.silent(row) == {1}
