"""What a dead agent left, taken in as far as it can be."""

import json

from allranks.agent.transport.outbox import Outbox
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.events import Kind
from allranks.server.loop.dead_agent_files import collect
from allranks.settings import Home
from allranks.store.database import open_database
from allranks.store.jobs.records import Records
from allranks.store.metric_points import Points


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
