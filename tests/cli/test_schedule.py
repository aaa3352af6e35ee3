"""Schedules on this machine: jobs at their times, missed times, pause and resume."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import Allranks, answer, kill_server, until


def schedule(folder: Path, start: datetime, **more: Any) -> Path:
    """A schedule with times from ``start`` on, whose job is in a file of its own."""
    data = {
        "$schema": "https://azuremlschemas.azureedge.net/latest/schedule.schema.json",
        "name": "often",
        "trigger": {
            "type": "recurrence",
            "frequency": more.pop("frequency", "minute"),
            "start_time": start.isoformat(),
        },
        "create_job": {"job": "jobs/job.yml", "inputs": {"rate": 0.75}},
        **more,
    }
    (folder / "jobs/src").mkdir(parents=True, exist_ok=True)
    (folder / "jobs/src/say.py").write_text("import sys; print('rate', sys.argv[1])\n")
    (folder / "jobs/job.yml").write_text(
        "command: python say.py ${{inputs.rate}}\ncode: src\ninputs: {rate: 0.5, other: 1}\n"
    )
    (folder / "schedule.yml").write_text(yaml.safe_dump(data))
    return folder / "schedule.yml"


def seconds_from_now(seconds: float) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=seconds)


@pytest.mark.slow
def test_a_job_is_submitted_at_its_time(allranks: Allranks, code: Path):
    assert answer(allranks, "schedule", "list") == []
    file = schedule(code, seconds_from_now(1.5))
    made = allranks("schedule", "create", "-f", file)
    assert made.returncode == 0, made.stderr
    assert made.stderr.startswith("often is created; first job: ")
    until(lambda: answer(allranks, "schedule", "show", "often")["last_job"] is not None)
    shown = answer(allranks, "schedule", "show", "often")
    name = shown["last_job"]
    assert name.startswith("often_20")
    assert allranks("job", "wait", name).returncode == 0
    assert allranks("job", "logs", name).stdout == "rate 0.75\n"
    job = answer(allranks, "job", "show", name)
    assert job["spec"]["properties"]["allranks.schedule"] == "often"
    assert job["spec"]["inputs"] == {"rate": 0.75, "other": 1}
    assert datetime.fromisoformat(shown["next_at"]) > datetime.now(UTC)
    assert name in allranks("schedule", "list").stdout
    # Its code is kept although nothing else refers to it.
    assert allranks("gc", "--yes", "--older-than", "0d").returncode == 0

    assert allranks("schedule", "pause", "often").returncode == 0
    paused = answer(allranks, "schedule", "show", "often")
    assert (paused["enabled"], paused["next_at"]) == (False, None)
    assert allranks("schedule", "resume", "often").returncode == 0
    assert answer(allranks, "schedule", "show", "often")["next_at"] is not None
    assert "already exists" in allranks("schedule", "create", "-f", file).stderr
    assert allranks("schedule", "delete", "--yes", "often").returncode == 0
    assert allranks("schedule", "show", "often").returncode != 0
    assert allranks("job", "show", name).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("catch_up", [False, True])
def test_times_missed_while_the_server_was_down(
    allranks: Allranks, home: Path, code: Path, catch_up: bool
):
    more = {"frequency": "hour", "catch_up": catch_up}
    file = schedule(code, seconds_from_now(-24 * 3600 - 600), **more)
    assert allranks("schedule", "create", "-f", file).returncode == 0
    before = answer(allranks, "schedule", "show", "often")
    assert (before["last_job"], before["missed"]) == (None, 0)
    assert allranks("server", "stop").returncode == 0
    # As if it had been down for three hours.
    with closing(sqlite3.connect(home / "allranks.db")) as database, database:
        database.execute("UPDATE schedules SET next_at = next_at - 3 * 3600")
    until(lambda: answer(allranks, "schedule", "show", "often")["missed"] > 0)
    after = answer(allranks, "schedule", "show", "often")
    assert after["missed"] == (2 if catch_up else 3)
    assert (after["last_job"] is not None) == catch_up
    assert len(answer(allranks, "job", "list")) == int(catch_up)
    assert f"missed      {after['missed']} times" in allranks("schedule", "show", "often").stdout


@pytest.mark.slow
def test_a_killed_server_submits_once(allranks: Allranks, home: Path, code: Path):
    assert allranks("schedule", "create", "-f", schedule(code, seconds_from_now(1))).returncode == 0
    for _ in range(4):
        until(lambda: (home / "server.json").exists())
        kill_server(home)
        answer(allranks, "schedule", "list")
    until(lambda: answer(allranks, "schedule", "show", "often")["last_job"] is not None)
    assert len(answer(allranks, "job", "list")) == 1


def test_pipelines_and_jobs_in_place_of_a_file(allranks: Allranks, code: Path):
    steps = {"a": {"command": "true"}}
    job = {"type": "pipeline", "jobs": steps}
    file = schedule(code, seconds_from_now(3600), name="later", create_job=job)
    assert allranks("schedule", "create", "-f", file).returncode == 0
    made = answer(allranks, "schedule", "show", "later")
    assert (made["type"], made["job"]["jobs"]) == ("pipeline", steps)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"create_job": "none.yml"}, "none.yml' not found"),
        ({"create_job": {"command": "x ${{inputs.y}}"}}, "`${{inputs.y}}` is not defined"),
        ({"create_job": {"command": "x", "compute": "nowhere"}}, "'nowhere'"),
        ({"trigger": {"type": "cron", "expression": "x"}}, "`x` is not a cron expression"),
        ({"triger": {}}, "`triger` is not a key"),
        ({"name": "a b"}, "must have 1 to 255 letters"),
    ],
)
def test_what_is_wrong_is_refused(shared: Allranks, code: Path, more: Any, message: str):
    (code / "x").mkdir()
    done = shared("schedule", "create", "-f", schedule(code, seconds_from_now(60), **more))
    assert done.returncode != 0
    assert message.replace("'", "") in done.stderr.replace("'", "").replace('"', "")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr
