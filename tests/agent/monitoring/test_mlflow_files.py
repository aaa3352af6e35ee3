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


def test_a_run_that_is_half_written_costs_no_other_its_points(tmp_path: Path) -> None:
    """MLflow 2 makes ``meta.yaml`` empty, and then fills it."""
    files = MlflowFiles(tmp_path, tmp_path / "points")
    for name, text in (("a", "start_time: 1\n"), ("b", "")):
        metrics = tmp_path / "mlruns" / "0" / name / "metrics"
        metrics.mkdir(parents=True)
        (metrics / "loss").write_text("1 0.5 0\n")
        (metrics.parent / "meta.yaml").write_text(text)
    files.look(at_once=True)
    (metrics.parent / "meta.yaml").write_text("start_time: 1\n")
    files.look(at_once=True)
    lines = (tmp_path / "points").read_text().splitlines()
    points = [point for line in lines for point in json.loads(line)["points"]]
    assert points == [["loss", None, 0, 0.001, 0.5]] * 2


def test_bytes_that_are_no_text_cost_no_point(tmp_path: Path) -> None:
    """Any program may write into the database, and give its tables any columns."""
    files = MlflowFiles(tmp_path, tmp_path / "points")
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.executescript(TABLES)
        database.execute("INSERT INTO params VALUES ('r', 'rate', ?)", (b"\xff",))
        database.execute("INSERT INTO params VALUES ('r', 'width', '8')")
        database.execute("INSERT INTO metrics VALUES ('r', CAST(x'ff41' AS TEXT), 1, 1000, 0, 0)")
        database.execute("INSERT INTO metrics VALUES ('r', 'loss', 0.5, 1000, 1, 0)")
        database.execute("ALTER TABLE metrics ADD COLUMN rowid")
        database.execute("UPDATE metrics SET rowid = CASE step WHEN 0 THEN 1 ELSE 'x' END")
    files.look(at_once=True)
    points, parameters = map(json.loads, (tmp_path / "points").read_text().splitlines())
    assert points["points"] == [["\ufffdA", None, 0, 1, 1], ["loss", None, 1, 1, 0.5]]
    assert parameters == {"parameters": {"width": "8"}}
    assert "1 row is not in the metrics" in files.notes()[0]["message"]


def test_a_view_without_end_is_not_read(tmp_path: Path) -> None:
    files = MlflowFiles(tmp_path, tmp_path / "points")
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.executescript(TABLES)
        database.executescript(
            "ALTER TABLE metrics RENAME TO other;"
            "CREATE VIEW metrics AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
            " SELECT julianday('now') * 86400000 + i AS rowid, 'r' AS run_uuid, 'loss' AS key,"
            " 0.5 AS value, 1 AS timestamp, i AS step, 0 AS is_nan FROM n LIMIT 200000"
        )
    files.look(at_once=True)
    assert not (tmp_path / "points").exists()


def test_models_that_are_only_in_mlflows_own_files_are_named(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as database, database:
        database.executescript(TABLES)
        database.execute("CREATE TABLE model_versions (name, version)")
        database.execute("INSERT INTO model_versions VALUES ('old', 1)")
        database.commit()
        files = MlflowFiles(tmp_path, tmp_path / "points")
        assert files.notes() == []
        database.execute("INSERT INTO model_versions VALUES ('birds\x1b', 1)")
        database.commit()
        (tmp_path / "mlruns" / "models" / "cats" / "version-2").mkdir(parents=True)
        files.look(at_once=True)
        (note,) = files.notes()
    assert "`birds" in note["message"]
    assert "\x1b" not in note["message"]
    assert "`cats:2` is only in MLflow's own files" in note["message"]
    assert "allranks model register NAME --job JOB" in note["message"]
