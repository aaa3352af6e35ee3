"""The engine whose nodes are those of sessions: what agents say of guests, and the end of both."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.engines.base import GangStatus, Handle
from allranks.events import Kind
from allranks.server.loop.wakeups import Wakeups
from allranks.server.sessions.engine import SessionEngine
from allranks.statuses import GangState, JobStatus, Reason
from allranks.store.database import opened_database
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

GUEST = Handle("guest.1")


class Bed:
    """A session and another job, as the record has them, and the engine."""

    def __init__(self, records: Records) -> None:
        self.records = records
        self.engine = SessionEngine(records, Wakeups(), lambda row: {})
        self.session = self.make("dev-s", {"session": {}})

    def make(self, name: str, spec: dict[str, Any]) -> JobRow:
        gang = Gang(f"{name}.1", 1, (), options={"session": "dev-s"})
        plan = Plan(gang, Task(name, "e", "c"), Rules(), "x")
        self.records.create(spec, plan)
        return self.records.get(name)

    def tell(self, kind: Kind, row: JobRow | None = None, **data: Any) -> None:
        row = row or self.session
        self.records.append(row.name, [row.event(kind, node=0, data=data)])

    def status(self) -> GangStatus:
        return self.engine.poll([GUEST])[GUEST.key]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with opened_database(tmp_path / "db") as database:
        yield Bed(Records(database))


def test_a_stopped_guest_lives_only_as_long_as_its_session(bed: Bed):
    bed.engine.orders(bed.session, 0, {GUEST.key: True})
    assert bed.status().state is GangState.UNKNOWN
    bed.tell(Kind.CLOSING, purpose="finish", reason=Reason.NODE_LOST)
    bed.tell(Kind.FINISHED, status=JobStatus.FAILED)
    assert bed.status().state is GangState.GONE


def test_the_agent_of_a_job_that_is_no_session_says_nothing_of_guests(bed: Bed):
    assert bed.engine.orders(bed.make("other", {}), 0, {GUEST.key: True}) is None
    assert bed.status().state is GangState.GONE


def test_a_guest_has_time_to_save_when_its_session_ends(bed: Bed):
    for kind in (Kind.SUBMITTED, Kind.HELLO, Kind.GO):
        bed.tell(kind)
    guest = bed.make("guest", {"inside": "dev-s"})
    bed.engine.submit(guest.plan.gang)
    bed.tell(Kind.SUBMITTED, guest)
    bed.tell(Kind.HELLO, guest)
    assert bed.status() == GangStatus(GangState.UP)
    bed.tell(Kind.CLOSING, purpose="finish", reason=Reason.CANCELED)
    assert bed.status() == GangStatus(GangState.UP, taken="dev-s ends")
    bed.tell(Kind.BYE, guest)
    assert bed.status() == GangStatus(GangState.GONE, "dev-s ends", reason=Reason.CANCELED)
