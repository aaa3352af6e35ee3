"""The plugin names the test that leaves a database open, whichever Python runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import contextlib, gc, sqlite3
import pytest
from sqlalchemy import create_engine

def opened(path):
    engine = create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        connection.exec_driver_sql("SELECT 1")
    return engine

@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    engine = opened(tmp_path_factory.mktemp("a") / "db")
    yield engine
    engine.dispose()

@pytest.fixture
def forgotten(tmp_path):
    return opened(tmp_path / "db")

def test_committed(tmp_path):
    with sqlite3.connect(tmp_path / "db") as connection:
        connection.execute("CREATE TABLE t (a)")

def test_shared(shared):
    gc.collect()

def test_fixture(forgotten):
    pass

def test_closed(tmp_path, shared):
    with contextlib.closing(sqlite3.connect(tmp_path / "db")):
        gc.collect()
    with pytest.raises(sqlite3.OperationalError):
        sqlite3.connect(tmp_path)
"""


@pytest.mark.medium
def test_a_test_that_leaves_a_database_open_fails(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-rE", "-p", "tests.unclosed_databases"]
    command += ["-p", "no:randomly", "-p", "no:cacheprovider", "-W", "error"]
    done = subprocess.run(
        [*command, tmp_path / "test_it.py"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[1],
    )
    words = [line.split() for line in done.stdout.splitlines() if line.startswith("ERROR ")]
    names = [each[1].rpartition("::")[2] for each in words]
    assert names == ["test_committed", "test_fixture"], done.stdout
    assert "4 passed, 2 errors" in done.stdout
