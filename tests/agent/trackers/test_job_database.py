"""Databases that a job made to harm whoever reads them."""

import os
import signal
import sqlite3
import struct
import subprocess
import sys

import pytest

from allranks.agent.monitoring.mlflow_files import MlflowFiles
from allranks.agent.trackers.job_database import connected
from allranks.agent.trackers.trackio_files import TrackioFile, run_names

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_ROW = ("2026-11-29T05:00:00", "first", 1, '{"loss": 0.5}')
_TABLES = """
    CREATE TABLE metrics (timestamp, run_name, step, metrics);
    CREATE TABLE configs (run_name, config);"""


@pytest.fixture
def file(tmp_path):
    """A database of Trackio's with one row."""
    (tmp_path / "runs").mkdir()
    path = tmp_path / "runs" / "p.db"
    make(path, _TABLES)
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?)", _ROW)
    database.close()
    return path


def make(path, script):
    with sqlite3.connect(path) as database:
        database.executescript(script)
    database.close()


def values(reader):
    return [point.value for part in reader.read(is_last=True) for point in part.points]


def journal(path, *, names):
    """A journal as of a transaction over several databases that was killed."""
    text = os.fsencode(names)
    check = sum(byte if byte < 128 else byte - 256 for byte in text) & 0xFFFFFFFF
    head = _MAGIC + struct.pack(">5I", 0, 0, path.stat().st_size // 4096, 512, 4096)
    tail = struct.pack(">I", (1 << 30) // 4096 + 1) + text + struct.pack(">2I", len(text), check)
    path.with_name(f"{path.name}-journal").write_bytes(head.ljust(512, b"\0") + tail + _MAGIC)


def test_a_journal_that_names_another_file_removes_none(tmp_path, file):
    """SQLite removes the file that a journal of several databases names when it is undone."""
    other = tmp_path / "id_ed25519"
    other.write_text("a key")
    journal(file, names=other)
    reader = TrackioFile(file)
    assert run_names(file) == []
    assert values(reader) == []
    assert other.read_text() == "a key"
    assert reader.damage == "its journal names another file"


_KILLED = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = " + sys.argv[2])
database.execute("PRAGMA cache_size = 2")
row = "INSERT INTO metrics SELECT timestamp, run_name, 2, metrics FROM metrics"
if sys.argv[2] == "wal":
    database.execute(row)
else:
    database.execute("BEGIN")
    for _ in range(16):
        database.execute(row)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(("mode", "rows"), [("delete", 1), ("wal", 2)])
def test_what_a_killed_rank_has_written_is_read(file, mode, rows):
    done = subprocess.run([sys.executable, "-c", _KILLED, str(file), mode], check=False)
    assert done.returncode == -signal.SIGKILL
    end = "journal" if mode == "delete" else "wal"
    before = {each.name: each.read_bytes() for each in file.parent.iterdir()}
    assert before[f"p.db-{end}"]
    assert values(TrackioFile(file)) == [0.5] * rows
    assert file.read_bytes() == before["p.db"]  # it is the job's


_ENDLESS = """
    WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT 5000)
    SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) + x AS rowid"""


def test_a_view_without_end_ends(file):
    row = "'2026-11-29T05:00:00' AS timestamp, 'r' AS run_name, x AS step"
    view = f"CREATE VIEW metrics AS {_ENDLESS}, {row}, '{{\"a\": 1}}' AS metrics FROM c"
    make(file, f"DROP TABLE metrics; {view}")
    reader = TrackioFile(file)
    assert len(values(reader)) < 100_000
    assert reader.damage == "it has more rows than its files have bytes"
    assert values(reader) == []


def test_values_that_the_file_cannot_hold_are_not_made(file):
    row = "'r' || x AS run_name, hex(zeroblob(7000000)) AS config"
    make(file, f"DROP TABLE configs; CREATE VIEW configs AS {_ENDLESS}, {row} FROM c")
    reader = TrackioFile(file)
    assert values(reader) == []
    assert reader.damage == "string or blob too big"


def test_rows_are_at_most_what_the_files_hold(file):
    with connected(file, file.parent) as database:
        endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c)"
        many = f"{endless} SELECT hex(zeroblob(9999)) FROM c"
        with pytest.raises(sqlite3.OperationalError, match="more rows"):
            for _ in database.rows(many):
                pass


def test_points_of_mlflow_that_do_not_end_are_left(tmp_path):
    """A virtual table counts as a table."""
    files = MlflowFiles(tmp_path, tmp_path / "points")
    make(
        tmp_path / "mlflow.db",
        """
        CREATE TABLE runs (run_uuid, name, start_time, end_time);
        CREATE TABLE tags (run_uuid, key);
        CREATE TABLE params (run_uuid, key, value);
        INSERT INTO runs VALUES ('r', 'r', 9999999999999, NULL);
        CREATE TABLE metrics (run_uuid, key, value, timestamp, step, is_nan);
        """,
    )
    with sqlite3.connect(tmp_path / "mlflow.db") as database:
        point = ("r", "loss", 0.5, 1, 1, 0)
        database.execute("INSERT INTO metrics VALUES (?, ?, ?, ?, ?, ?)", point)
    database.close()
    (source, _) = files._sources
    source._count = (tmp_path / "mlflow.db").stat().st_size  # as many were read before
    files.look(at_once=True)
    (note,) = files.notes()
    assert "more rows than its files have bytes" in note["message"]
