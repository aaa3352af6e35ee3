"""What is told to MLflow next: every job of which something is not there."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete, insert

from allranks.store.database import open_database
from allranks.store.mlflow_runs import MlflowRuns
from allranks.store.tables import jobs


@pytest.fixture
def database(tmp_path: Path):
    engine = open_database(tmp_path / "db")
    yield engine
    engine.dispose()


def add(database, name, status="Queued"):
    values = {"name": name, "experiment": "e", "status": status, "live": 1, "version": 1}
    values |= {"created_at": 1.5, "spec": {}, "plan": {}, "record": {}}
    with database.begin() as connection:
        return connection.execute(insert(jobs).values(**values)).inserted_primary_key[0]


def test_however_many_wait_none_is_forgotten(database):
    runs, first = MlflowRuns(database), add(database, "runs", "Running")
    for number in range(300):
        add(database, f"waits-{number}")
    waiting = runs.waiting()
    assert waiting[-1] == ("runs", 1.5, "Running")
    assert len(waiting) == 301
    runs.keep(first, "r", "e")
    assert runs.waiting()[-1][0] == "runs"
    runs.set_positions(first, {7: 8}, done=True)
    assert len(runs.waiting()) == 300


def test_what_it_does_not_take_is_not_told_again_and_has_no_run(database):
    runs, one, other = MlflowRuns(database), add(database, "one"), add(database, "other")
    runs.keep(other, "r", "e")
    runs.set_positions(other, {1: 2})
    runs.give_up(one)
    runs.give_up(other)
    assert runs.waiting() == []
    assert runs.get(one) is None
    found = runs.get(other)
    assert (found.run_id, found.positions, found.done) == ("r", {1: 2}, True)
    with database.begin() as connection:
        connection.execute(delete(jobs).where(jobs.c.id == one))
    assert runs.get(one) is None
