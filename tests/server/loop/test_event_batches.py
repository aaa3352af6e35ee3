"""Events of many agents share a transaction, and one that fails takes no other with it."""

import asyncio
import threading
import time
from typing import Any

import pytest

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import NotFound
from allranks.events import Event, Kind
from allranks.server.loop.event_batches import EventBatches
from allranks.store.database import open_database
from allranks.store.jobs.records import Records

NODES = 64


class Slow(Records):
    """Its first transaction begins when ``go`` is set; counts all."""

    def __init__(self, engine: Any) -> None:
        super().__init__(engine)
        self.go, self.transactions = threading.Event(), 0

    def append_all(self, events):
        self.go.wait(10)
        self.transactions += 1
        return super().append_all(events)


@pytest.fixture
def records(where):
    engine = open_database(where)
    records = Slow(engine)
    for name in ("j", "k"):
        task = Task(name, "ex", "true", NODES)
        records.create({}, Plan(Gang(f"{name}.1", NODES, ("agent",)), task, Rules(NODES), "fake"))
    yield records
    engine.dispose()


def hello(node: int, **more: Any) -> list[Event]:
    return [Event(Kind.HELLO, time.time(), node=node, seq=1, **more)]


def test_agents_share_transactions(records):
    woken: list[str] = []

    async def all_say_hello() -> list[Any]:
        batches = EventBatches(records, woken.append)
        tasks = [
            asyncio.create_task(batches.append(name, hello(node)))
            for node in range(NODES)
            for name in ("j", "k")
        ]
        while batches._writing is None or batches._waiting:
            await asyncio.sleep(0)
        records.go.set()
        return await asyncio.gather(*tasks)

    rows = asyncio.run(all_say_hello())
    assert {node.seq for name in ("j", "k") for node in records.get(name).record.nodes} == {1}
    assert all(row.record.nodes[number // 2].seq == 1 for number, row in enumerate(rows))
    assert records.transactions <= 3
    assert sorted(set(woken)) == ["j", "k"]


def test_a_deleted_job_fails_alone(records):
    records.go.set()

    async def both() -> list[Any]:
        batches = EventBatches(records, lambda name: None)
        calls = [batches.append("j", hello(0)), batches.append("gone", hello(0))]
        return await asyncio.gather(*calls, return_exceptions=True)

    kept, refused = asyncio.run(both())
    assert kept.record.nodes[0].seq == 1
    assert isinstance(refused, NotFound)
    assert [each.event.kind for each in records.events("j")] == [Kind.CREATED, Kind.HELLO]


def test_an_event_that_cannot_be_stored_takes_no_other_with_it(records):
    records.go.set()

    async def both() -> list[Any]:
        batches = EventBatches(records, lambda name: None)
        bad = hello(1, data={"not": object()})
        calls = [batches.append("j", hello(0)), batches.append("j", bad)]
        return await asyncio.gather(*calls, return_exceptions=True)

    kept, refused = asyncio.run(both())
    assert kept.record.nodes[0].seq == 1
    assert isinstance(refused, Exception)
    assert records.get("j").record.nodes[1].seq == 0


def test_an_agent_that_hung_up_and_a_bell_that_fails_leave_the_others(records):
    records.go.set()

    async def three() -> Any:
        def broken(name: str) -> None:
            raise RuntimeError(name)

        batches = EventBatches(records, broken)
        gone = asyncio.create_task(batches.append("j", hello(0)))
        await asyncio.sleep(0)
        gone.cancel()
        return await asyncio.gather(batches.append("j", hello(1)), batches.append("k", hello(1)))

    asyncio.run(asyncio.wait_for(three(), 20))
    assert [node.seq for node in records.get("j").record.nodes[:2]] == [1, 1]
