"""Files that a job makes endless: a hole costs it nothing, and whoever reads it hours."""

import contextlib
import json
import sqlite3
import time
from pathlib import Path

import pytest

from allranks.agent.monitoring.logged_lines import LoggedLines
from allranks.agent.monitoring.lost_output import LostOutput
from allranks.agent.monitoring.metric_scraper import Scraper
from allranks.agent.monitoring.mlflow_files import MlflowFiles
from allranks.agent.trackers.job_database import connected
from allranks.agent.transport.tails import Feed, Tail, read_lines
from tests.agent.monitoring.test_mlflow_files import TABLES

HOLE = 1 << 42
LINE = b'{"points": [["loss", 0, 1, 1.5, 0.25]]}\n'


@pytest.fixture(autouse=True)
def _bounded():
    began = time.process_time()
    yield
    assert time.process_time() - began < 3


def with_hole(path: Path, before: bytes, after: bytes) -> Path:
    with path.open("wb") as file:
        file.write(before)
        file.truncate(HOLE)
        file.seek(0, 2)
        file.write(after)
    return path


def sent(tail: Tail) -> bytes:
    """What the server gets."""
    data = b""
    while piece := tail.rest():
        data += piece
        tail.sent = len(data)
    return data


def test_a_hole_in_output_is_left_out_and_said(tmp_path):
    log = with_hole(tmp_path / "rank-0.log", b"first\n", b"loss=0.5\n")
    tail = Tail(1, 0, log)
    data = sent(tail)
    assert data.replace(b"\0", b"") == b"first\nloss=0.5\n"
    tail.sent = 3  # the server's record was restored
    again = tail.rest()
    assert (data[:3] + again).replace(b"\0", b"") == b"first\n"
    output = LostOutput(tmp_path)
    output.whole = {0: log}
    (note,) = output.notes()
    assert note["message"].startswith("the output of rank 0 has holes, which are left out")


def test_a_hole_in_output_does_not_keep_its_metrics(tmp_path):
    log = with_hole(tmp_path / "rank-0.log", b"loss=1.5\n", b"\nloss=0.5\n")
    metric = {"name": "loss", "pattern": r"loss=(\S+)", "rank": 0}
    scraper = Scraper({"metrics": [metric], "logs": {0: str(log)}, "into": str(tmp_path / "m")})
    assert scraper.read_rest() == ""
    scraper.close()
    lines = [json.loads(line) for line in (tmp_path / "m").read_text().splitlines()]
    assert [point[-1] for line in lines for point in line["points"]] == [1.5, 0.5]


def test_points_beside_a_hole_are_sent(tmp_path):
    file = with_hole(tmp_path / "logged.jsonl", LINE, b"\n" + LINE)
    assert sent(Feed(1, "logged", file)).replace(b"\0", b"") == LINE + b"\n" + LINE
    logged = LoggedLines(file)
    logged.look(last=True)
    (note,) = logged.notes()
    assert "a hole, or 16 MB without a newline" in note["message"]


def test_a_line_without_end_is_passed_over(tmp_path):
    path = tmp_path / "logged.jsonl"
    with path.open("wb") as file:
        for _ in range(40):
            file.write(b"x" * (1 << 20))
        file.write(b"\n" + LINE)
    assert sent(Feed(1, "logged", path)).endswith(b"x\n" + LINE)
    with path.open("rb") as opened:
        assert read_lines(opened, 0)[0] == 32 << 20


def test_damage_in_the_scrapers_own_file_is_not_read_whole(tmp_path):
    into = with_hole(tmp_path / "m", b"", b"")
    with pytest.raises(ValueError, match="bytes were written into its file"):
        Scraper({"metrics": [], "logs": {}, "into": str(into)})


def test_a_hole_in_mlflows_files_costs_no_other_point(tmp_path):
    files = MlflowFiles(tmp_path, tmp_path / "points")
    run = tmp_path / "mlruns" / "0" / "a"
    (run / "metrics").mkdir(parents=True)
    (run / "meta.yaml").write_text("start_time: 1\n")
    with_hole(run / "metrics" / "loss", b"1 0.5 0\n", b"\n2 0.25 1\n")
    with_hole(run / "metrics" / "other", b"", b"")
    files.look(at_once=True)
    lines = (tmp_path / "points").read_text().splitlines()
    points = [point for line in lines for point in json.loads(line)["points"]]
    assert [point[-1] for point in points] == [0.5, 0.25]
    (note,) = files.notes()
    assert "rows are not in the metrics; the first: a hole" in note["message"]


def test_a_bad_row_does_not_end_the_last_reading(tmp_path, monkeypatch):
    monkeypatch.setattr("allranks.agent.monitoring.mlflow_files._ROWS", 10)
    files = MlflowFiles(tmp_path, tmp_path / "points")
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.executescript(TABLES)
        database.execute("INSERT INTO metrics VALUES ('r', 'loss', 'x', 1000, 0, 0)")
        for step in range(30):
            database.execute("INSERT INTO metrics VALUES ('r', 'loss', 0.5, 1000, ?, 0)", [step])
    files.look(at_once=True)
    lines = (tmp_path / "points").read_text().splitlines()
    assert sum(len(json.loads(line)["points"]) for line in lines) == 30


def test_holes_of_a_database_allow_no_rows(tmp_path):
    path = tmp_path / "p.db"
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE t (a)")
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    with connected(path, tmp_path) as database:
        assert database.size < 1 << 20
