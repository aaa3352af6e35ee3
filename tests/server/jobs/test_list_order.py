"""Lists of jobs by columns that the database cannot sort by, and how many rows they read."""

from pathlib import Path

import pytest
from sqlalchemy import text

from allranks.core.job.list_filters import Query, sort
from allranks.errors import UsageError
from allranks.server.jobs import list_order
from allranks.store.database import open_database
from allranks.store.jobs.annotations import Annotations
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records
from tests.store.jobs.test_records import plan


class Jobs:
    def __init__(self, folder: Path) -> None:
        self.database = open_database(folder / "db")
        self.records, self.notes = Records(self.database), Annotations(self.database)

    def add(self, name: str, **spec: object) -> JobRow:
        return self.records.create(spec, plan(name))

    def names(self, by: str, **filters: object) -> list[str]:
        query = Query(sort=sort(by), **filters)  # type: ignore[arg-type]
        return [row.name for row in list_order.find_sorted(self.records, self.notes, query)]


@pytest.fixture
def jobs(tmp_path: Path):
    made = Jobs(tmp_path)
    yield made
    made.database.dispose()


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The ids of the rows that were read."""
    ids: list[int] = []
    pages = Records.pages
    monkeypatch.setattr(Records, "pages", lambda self, some: pages(self, ids.extend(some) or some))
    return ids


def test_numbers_of_any_size_sort(jobs: Jobs) -> None:
    for name, value in (("huge", 10**400), ("least", -(10**400)), ("one", 1), ("word", "x")):
        jobs.add(name, inputs={"n": value})
    jobs.add("none")
    assert jobs.names("n") == ["least", "one", "huge", "word", "none"]
    assert jobs.names("-inputs.n", limit=2) == ["word", "huge"]
    assert jobs.names("-n")[-1] == "none"


def test_a_name_may_be_that_of_anything(jobs: Jobs) -> None:
    jobs.add("tagged", tags={"100%_\\ é": "2"})
    jobs.add("other", tags={"100%_\\ é": "1"})
    row = jobs.add("logged")
    jobs.notes.add_parameters({row.id: {"learning_rate": "0.1"}})
    made = plan("flag")
    task = made.task._replace(command="python t.py --batch-size 3")
    jobs.records.create({}, made._replace(task=task))
    assert jobs.names("batch_size", limit=1) == ["flag"]
    assert jobs.records.ids(Query(mentions="batch_size")) == [4]
    assert jobs.names("tags.100%_\\ é") == ["other", "tagged", "logged", "flag"]
    assert jobs.names("learning_rate", limit=1) == ["logged"]
    assert jobs.names("-nodes", limit=1) == ["flag"]
    assert jobs.names("archived") == jobs.names("created")


def test_only_jobs_that_may_have_a_value_are_read(
    jobs: Jobs, read: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(list_order, "_MOST", 5)
    monkeypatch.setattr(list_order, "_SOME", 3)
    for number in range(6):
        jobs.add(f"old{number}")
    for number in range(2):
        jobs.add(f"new{number}", inputs={"lr": -number})
    assert jobs.names("lr", limit=3) == ["new1", "new0", "old0"]
    assert len(read) <= 3 + 2 + 3, "first as by a metric, then the candidates, then the page"
    read.clear()
    with pytest.raises(UsageError, match=r"no job in this list .* 'lss'") as error:
        jobs.names("lss", limit=2)
    assert "lr" in error.value.hint
    assert len(read) <= 2 + 3, "the first page, and those whose names the hint lists"
    with pytest.raises(UsageError, match="more than 5 jobs"):
        jobs.names("nodes", limit=1)
    assert jobs.names("nodes", name="new*", limit=1) == ["new0"]
    for column in ("exit_code", "archived", "display_name"):
        read.clear()
        jobs.names(column, limit=2)
        assert len(read) == 2, column


def test_a_damaged_row_comes_last(jobs: Jobs) -> None:
    jobs.add("damaged", inputs={"lr": 0})
    jobs.add("whole", inputs={"lr": 1})
    with jobs.database.begin() as connection:
        connection.execute(text("UPDATE jobs SET record = '[' WHERE name = 'damaged'"))
    assert jobs.names("lr") == ["whole", "damaged"]
