"""What a dead agent left, taken in as far as it can be."""

import json
import os
import time

import pytest

from allranks.agent.transport.outbox import Outbox
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.events import Kind
from allranks.server.loop.dead_agent_files import collect
from allranks.settings import Home
from allranks.store.database import open_database
from allranks.store.files.logs import Logs
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points

HOLE = 1 << 42


@pytest.mark.parametrize("odd", ["hole", "pipe", "link"])
def test_what_a_job_put_in_its_place_keeps_no_other_job_waiting(tmp_path, odd):
    database, home = open_database(tmp_path / "db"), Home(tmp_path)
    records = Records(database)
    records.create({}, Plan(Gang("j.1", 1, ()), Task("j", "e", "c"), Rules(), "x"))
    row = records.get("j")
    folder = home.nodes / f"j.{row.record.launch}" / "0"
    (folder / "attempt-1").mkdir(parents=True)
    names = ("outbox.jsonl", "attempt-1/rank-0.log", "attempt-1/logged.jsonl")
    for path in (folder / name for name in names):
        if odd == "pipe":
            os.mkfifo(path)
        elif odd == "link":
            path.symlink_to("/dev/zero")
        else:
            with path.open("wb") as file:
                file.write(b"hello\n")
                file.truncate(HOLE)
    began = time.process_time()
    collect(home, records, Points(database), row, 0)
    assert time.process_time() - began < 3
    database.dispose()
    logs = Logs(home.jobs / "j")
    kept = logs.read(1, "user_logs/std_log.txt", 0, 1 << 22).rstrip(b"\0")
    assert kept == (b"hello\n" if odd == "hole" else b"")


def test_points_that_cannot_be_kept_keep_nothing_else_back(tmp_path):
    database, home = open_database(tmp_path / "db"), Home(tmp_path)
    records = Records(database)
    records.create({}, Plan(Gang("j.1", 1, ()), Task("j", "e", "c"), Rules(), "x"))
    row = records.get("j")
    folder = home.nodes / f"j.{row.record.launch}" / "0"
    (folder / "attempt-1").mkdir(parents=True)
    outbox = Outbox(folder, row.record.launch, 0)
    outbox.say(Kind.NOTE, 1, message="heard")
    outbox.close()
    line = {"points": [["loss", 0, 0, 1.0, 5]]}
    (folder / "attempt-1" / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    with database.begin() as connection:
        connection.exec_driver_sql("DROP TABLE points")
    collect(home, records, Points(database), row, 0)
    told = [each.event.data.get("message") for each in records.events("j")]
    assert "heard" in told
    database.dispose()
