"""Schedules in the database."""

from __future__ import annotations

from pathlib import Path

from allranks.store.database import opened_database
from allranks.store.schedules import ScheduleRow, Schedules


def test_a_change_of_last_keeps_what_others_wrote(tmp_path: Path) -> None:
    with opened_database(tmp_path / "db") as database:
        schedules = Schedules(database)
        schedules.create(ScheduleRow("often", {}, {}, 1.0, "me", True, 2.0, None))
        schedules.change("often", last={"missed": 3})
        row = schedules.change("often", next_at=3.0, last={"job": "often_1"})
        assert row.last == {"missed": 3, "job": "often_1"}
        assert schedules.change("often", enabled=0).last == row.last
