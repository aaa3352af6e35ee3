"""Jobs whose attempts reach a time limit of their compute, as a cluster's: the agent gets the
signal for it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from allranks.core.lifecycle.repeated_time_limits import Left
from allranks.core.plan import Gang, OutputTask, Plan, Rules, Task
from allranks.server.assets.state_folders import States
from allranks.server.loop import progress
from allranks.settings import Home, make
from allranks.store.database import opened_database
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Point, Points
from tests.support import Allranks, answer

SCRIPT = """
import os, signal, sys, time
attempt = int(os.environ["ALLRANKS_ATTEMPT"])
if attempt == 4:
    sys.exit(0)
if sys.argv[1:] == ["files"]:
    open(os.environ["ALLRANKS_STATE_DIR"] + f"/step-{attempt}", "w").write("x")
if sys.argv[1:] == ["again"]:
    open(os.environ["ALLRANKS_STATE_DIR"] + "/ckpt", "w").write(f"{attempt}")
os.kill(os.getppid(), signal.SIGXCPU)
time.sleep(60)
"""


def run(allranks: Allranks, code, word: str, rule: str = "fail"):
    (code / "train.py").write_text(SCRIPT)
    retry = f"retry: {{max_attempts: 2, no_progress: {rule}}}"
    lines = [f"command: python train.py {word}", "code: .", retry]
    (code / "job.yml").write_text("\n".join(lines))
    done = allranks("job", "create", "-f", "job.yml", "--name", "j", "--stream")
    job = answer(allranks, "job", "show", "j")
    events = answer(allranks, "job", "events", "j")
    said = [each["data"].get("message", "") for each in events if each["kind"] == "relaunched"]
    return done, job, said


@pytest.mark.slow
def test_three_attempts_without_progress_end_the_job(allranks, code):
    done, job, said = run(allranks, code, "")
    assert (job["status"], job["attempts"], done.returncode) == ("Failed", 3, 1)
    assert job["error"]["reason"] == job["error"]["cause"] == "NO_PROGRESS"
    assert "three attempts in a row reached the time limit" in done.stderr
    assert "`retry: {no_progress: warn}` goes on" in done.stderr
    assert [each.partition("far ")[2] for each in said] == [
        "(1 of 3 in a row)",
        "(2 of 3 in a row)",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("word", "rule"), [("", "warn"), ("", "ignore"), ("files", "fail"), ("again", "fail")]
)
def test_other_jobs_go_on(allranks, code, word, rule):
    _, job, said = run(allranks, code, word, rule)
    assert (job["status"], job["attempts"]) == ("Completed", 4)
    assert [bool(each) for each in said] == [rule == "warn"] * 3


@pytest.fixture
def home_and_database(tmp_path: Path) -> Iterator[tuple[Home, Engine]]:
    home = Home(tmp_path / "home")
    make(home)
    with opened_database(home.database) as engine:
        yield home, engine


def test_what_all_attempts_have_left(home_and_database):
    home, engine = home_and_database
    records, points = Records(engine), Points(engine)
    task = Task("j", "x", "true")
    row = records.create({}, Plan(Gang("j.1", 1, ("x",)), task, Rules(), "fake"))
    look = home, States(home, records), points
    assert progress.before(row, records) == Left()
    empty = progress.now(row, Left(), *look)
    assert (empty.step, empty.files, empty.hidden) == (None, frozenset(), False)

    record = home.jobs / "j"
    for folder in ("artifacts/outputs", "artifacts/logs", "attempts/1/work"):
        (record / folder).mkdir(parents=True)
        (record / folder / "f").write_text("x")
    points.add_metrics(row.id, 1, [("loss", Point(7, 1.0, 0.5))])
    left = progress.now(row, empty, *look)
    assert (left.step, len(left.files)) == (7, 1)  # not of logs, nor of earlier attempts

    points.add_metrics(row.id, 2, [("loss", Point(3, 2.0, 0.5))])
    (record / "artifacts/outputs/f").unlink()
    (record / "artifacts/outputs/g").write_text("x")
    later = progress.now(row, left, *look)
    assert (later.step, len(later.files)) == (7, 2)  # what ever was there


@pytest.mark.parametrize(
    "changes",
    [
        {"in_place": "/code"},
        {"outputs": (OutputTask("o", "", uri="s3://b/o"),)},
        {"outputs": (OutputTask("o", "/data/model"),)},
    ],
)
def test_where_an_output_is_not_seen(home_and_database, changes):
    home, engine = home_and_database
    records = Records(engine)
    plan = Plan(Gang("j.1", 1, ("x",)), Task("j", "x", "true", **changes), Rules(), "fake")
    row = records.create({}, plan)
    points = Points(engine)
    assert progress.now(row, Left(), home, States(home, records), points).hidden
