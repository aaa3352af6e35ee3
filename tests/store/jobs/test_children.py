"""Children of a job in the database, of both kinds."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.core.job.list_filters import Query
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import Conflict, UsageError
from allranks.events import Kind
from allranks.statuses import JobStatus
from allranks.store.database import open_database
from allranks.store.jobs.children import Children
from allranks.store.jobs.job_rows import Child
from allranks.store.jobs.records import Records


def plan(name: str, nodes: int = 1) -> Plan:
    return Plan(Gang(f"{name}.1", nodes, ()), Task(name, "e", "c", nodes), Rules(), "x")


@pytest.fixture
def database(where: Path | str):
    engine = open_database(where)
    yield engine
    engine.dispose()


@pytest.fixture
def records(database):
    return Records(database)


@pytest.fixture
def children(database):
    return Children(database)


def add(records: Records, number: int, name: str = ""):
    name = name or f"s_{number}"
    child = Child("s", number, {"parameters": {"x": number}})
    return records.create({}, plan(name), child=child)


def finish(records: Records, name: str, status: JobStatus) -> None:
    row = records.get(name)
    assert records.apply(row, [row.event(Kind.FINISHED, data={"status": status})])


def test_children_have_numbers_and_notes(records, children):
    records.create({"limits": {}}, plan("s", 0), type="sweep")
    records.create({}, plan("other"))
    rows = [add(records, number) for number in (0, 1, 2)]
    found = children.of("s")
    assert [(e.name, e.number, e.status) for e in found] == [
        (f"s_{n}", n, JobStatus.NOT_STARTED) for n in range(3)
    ]
    assert found[1].notes == {"parameters": {"x": 1}}
    assert (rows[0].parent, rows[0].number, records.get("s").type) == ("s", 0, "sweep")
    assert children.of("other") == []

    records.append("s_1", [], {"value": 0.5})
    records.append("s_2", [records.get("s_2").event(Kind.CANCEL_ASKED)])
    newest = found[-1].id
    assert children.of("s", above=newest) == []
    assert [e.notes for e in children.of("s", above=newest, ids=(found[1].id,))] == [{"value": 0.5}]
    assert [e.canceled for e in children.of("s")] == [False, False, True]
    force = records.get("s_2").event(Kind.CANCEL_ASKED, data={"force": True})
    records.append("s_2", [force])
    assert [e.given_up for e in children.of("s")] == [False, False, True]
    assert records.get("s_1").notes == {"value": 0.5}

    finish(records, "s_1", JobStatus.COMPLETED)
    assert children.counts(["s", "other"]) == {"s": {"NotStarted": 2, "Completed": 1}}
    assert children.names("s") == ["s_0", "s_1", "s_2"]
    assert (children.has("s", 2), children.has("s", 3)) == (True, False)


def test_a_number_is_given_once(records, children):
    records.create({}, plan("s", 0), type="sweep")
    add(records, 0)
    with pytest.raises(Conflict):
        add(records, 0, "another")
    assert children.names("s") == ["s_0"]


def test_lists_fold_children(records):
    records.create({}, plan("s", 0), type="sweep")
    add(records, 0)
    records.create({}, plan("s2"))

    def names(**words) -> list[str]:
        return [row.name for row in records.find(Query(**words))]

    assert names() == ["s2", "s"]
    assert names(parent="s") == ["s_0"]
    assert names(children=True) == ["s2", "s_0", "s"]
    assert records.names_with_prefix("s_", 5) == ["s_0"]
    assert records.names_with_prefix("s", 5) == ["s2", "s"]
    assert [name for name, _ in records.recent()] == ["s2", "s"]


def test_a_sweep_answers_by_its_best_trial(records):
    records.create({}, plan("s", 0), type="sweep")
    add(records, 0)
    assert records.answering("s").name == "s"
    row = records.get("s")
    event = row.event(Kind.FINISHED, data={"status": JobStatus.COMPLETED})
    records.apply(row, [event], notes={"best": "s_0"})
    assert records.answering("s").name == "s_0"
    assert records.answering("s_0").name == "s_0"
    with pytest.raises(UsageError, match="is a sweep and has no ranks"):
        records.with_ranks("s")
    finish(records, "s_0", JobStatus.COMPLETED)
    records.delete_job("s_0")
    assert records.answering("s").name == "s"


def test_an_ended_sweep_is_opened_again(records, children):
    records.create({"limits": {}}, plan("s", 0), type="sweep")
    rows = [add(records, number) for number in (0, 1)]
    row = records.get("s")
    with pytest.raises(Conflict):
        records.reopen(row, row.event(Kind.RESUMED), {}, {})
    finish(records, "s", JobStatus.CANCELED)
    ended = records.get("s")
    spec = {"limits": {"max_total_trials": 9}}
    live = records.reopen(ended, ended.event(Kind.RESUMED), spec, {rows[1].id: 1})
    assert (live.record.status, live.spec, live.ended_at) == (JobStatus.RUNNING, spec, None)
    assert not live.record.canceled
    assert "s" in [each.name for each in records.live()]
    assert [each.number for each in children.of("s")] == [0]
    assert children.names("s") == ["s_0", "s_1"]
    with pytest.raises(Conflict):
        records.reopen(ended, ended.event(Kind.RESUMED), spec, {})
    add(records, 1, "s_1-2")
