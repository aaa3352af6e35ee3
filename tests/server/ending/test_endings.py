"""Jobs that loops hand over to be ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.events import Kind
from allranks.server.ending.endings import Ending, Endings, Outcome
from allranks.settings import Home, make
from allranks.statuses import JobStatus, Reason
from allranks.store.database import open_database
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    make(home)
    return home


@pytest.fixture
def records(home: Home) -> Iterator[Records]:
    database = open_database(home.database)
    yield Records(database)
    database.dispose()


def closing(records: Records) -> JobRow:
    """A job that is done, and whose agent has left."""
    task = Task("j", "ex", "true", 1)
    row = records.create({}, Plan(Gang("j.1", 1, ("agent",)), task, Rules(1), "fake"))
    for kind, data in (
        (Kind.SUBMITTED, {"key": "j.1", "ref": "1"}),
        (Kind.HELLO, {}),
        (Kind.READY, {"address": "a", "host": "a", "ports": []}),
        (Kind.GO, {}),
        (Kind.STARTED, {}),
        (Kind.ENDED, {"reason": Reason.DONE}),
    ):
        node = None if kind in (Kind.SUBMITTED, Kind.GO) else 0
        row = records.append("j", [row.event(kind, node=node, data=data)])
    return row


def ended(endings: Endings, row: JobRow) -> Outcome:
    outcomes: list[Outcome] = []
    closed = row.event(Kind.CLOSING, data={"purpose": "finish", "reason": Reason.DONE})
    endings.end_job(Ending(row, [closed], outcomes.append))
    endings.look(set())
    (outcome,) = outcomes
    return outcome


def test_a_job_is_ended_once_with_its_last_step(home: Home, records: Records):
    aside: list[bool] = []
    folders: Any = SimpleNamespace(set_aside=lambda _, completed: aside.append(completed))
    data: Any = None
    endings = Endings(home, records, data, folders)
    row = closing(records)
    outcome = ended(endings, row)
    assert outcome.error is None
    assert outcome.saved is not None
    assert outcome.saved.record.status is JobStatus.COMPLETED
    kinds = [stored.event.kind for stored in records.events("j")]
    assert kinds[-2:] == [Kind.CLOSING, Kind.FINISHED]
    assert aside == [True]
    # The loop decided on an older record: it decides anew, and nothing is recorded twice.
    assert ended(endings, row) == Outcome(row, None)
    assert [stored.event.kind for stored in records.events("j")] == kinds


def test_what_fails_is_told_and_may_be_done_again(home: Home, records: Records):
    full = [OSError(28, "No space left on device")]

    def set_aside(row: JobRow, completed: bool) -> None:
        if full:
            raise full.pop()

    data: Any = None
    folders: Any = SimpleNamespace(set_aside=set_aside)
    endings = Endings(home, records, data, folders)
    row = closing(records)
    outcome = ended(endings, row)
    assert (outcome.saved, isinstance(outcome.error, OSError)) == (None, True)
    assert records.get("j").record.status is row.record.status
    assert ended(endings, row).saved is not None
