"""Points that are only in MLflow's own files."""

import contextlib
import json
import math
import sqlite3
from pathlib import Path

from allranks.agent.monitoring.mlflow_files import MlflowFiles

TABLES = """
CREATE TABLE runs (run_uuid, name, start_time, end_time);
CREATE TABLE tags (run_uuid, key);
CREATE TABLE params (run_uuid, key, value);
CREATE TABLE metrics (run_uuid, key, value, timestamp, step, is_nan);
INSERT INTO runs VALUES ('r', 'run', 1, 0);
"""


def test_values_that_a_database_cannot_hold(tmp_path: Path) -> None:
    """MLflow writes 0 and a mark for NaN, and the largest numbers for infinity."""
    files = MlflowFiles(tmp_path, tmp_path / "points")
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.executescript(TABLES)
        for value, is_nan in ((0, 1), (1.7976931348623157e308, 0), (-1.7976931348623157e308, 0)):
            database.execute("INSERT INTO metrics VALUES ('r', 'm', ?, 1, 0, ?)", (value, is_nan))
        database.execute("INSERT INTO metrics VALUES ('r', 'm', 1e308, 1, 0, 0)")
    files.look(at_once=True)
    rows = json.loads((tmp_path / "points").read_text())["points"]
    assert math.isnan(rows[0][-1])
    assert [row[-1] for row in rows[1:]] == [math.inf, -math.inf, 1e308]
