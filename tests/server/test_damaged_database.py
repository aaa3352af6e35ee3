"""A damaged or lost database is named at once, with the newest backup, and no new job takes over
the folder of an earlier one."""

import contextlib
import json
import shlex
import shutil
import sqlite3
import time
from pathlib import Path

import pytest

from allranks.settings import Home, restore_hint
from allranks.store.database import open_database
from tests.server.serving import JOB, served
from tests.support import Allranks

MALFORMED = "the database is damaged: "


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with all tables, in one file."""
    path = tmp_path_factory.mktemp("healthy") / "allranks.db"
    open_database(path).dispose()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
    return path


def pages(path: Path) -> dict[str, int]:
    """The first page of each table and index."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT name, rootpage FROM sqlite_master WHERE rootpage > 0")
        return dict(rows.fetchall())


def overwrite(path: Path, page: int) -> None:
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xee" * 4096)


@pytest.mark.slow
@pytest.mark.parametrize("table", ["jobs", "settings", "schedules"])
def test_an_overwritten_page_is_reported_at_once_with_the_newest_backup(
    table: str, allranks: Allranks, home: Path, healthy: Path
) -> None:
    home.mkdir()
    shutil.copy(healthy, home / "allranks.db")
    overwrite(home / "allranks.db", pages(healthy)[table])
    older, newer = home / "a.tar", home / "b b.tar"
    for each in (older, newer):
        each.touch()
    backups = [str(older), str(newer), "/nowhere/c.tar"]
    (home / "backups.json").write_text(json.dumps(backups))
    started = time.monotonic()
    done = allranks("job", "list")
    assert done.returncode == 2
    assert time.monotonic() - started < 15.0  # it took 33 s
    assert MALFORMED in done.stderr
    assert f"allranks server restore {shlex.quote(str(newer))} --force" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("what", ["missing", "empty", "without tables"])
def test_a_lost_record_beside_jobs_is_not_begun_anew(
    what: str, allranks: Allranks, home: Path
) -> None:
    (home / "jobs" / "earlier" / "attempts").mkdir(parents=True)
    if what == "empty":
        (home / "allranks.db").touch()
    if what == "without tables":
        with contextlib.closing(sqlite3.connect(home / "allranks.db")) as connection:
            connection.execute("PRAGMA journal_mode=WAL")
    for _ in range(2):
        done = allranks("job", "list")
        assert done.returncode == 2
        assert "the database is empty, but" in done.stderr
        assert "such as earlier" in done.stderr
        assert "move that folder away" in done.stderr
    (home / "jobs").rename(home / "jobs-before")
    assert allranks("job", "list").returncode == 0


def test_what_is_known_of_backups_that_are_gone_or_unreadable(tmp_path: Path) -> None:
    home = Home(tmp_path)
    assert restore_hint(home) == "restore a backup: allranks server restore FILE --force"
    for text in ("{", "7", '["/nowhere/x"]'):
        home.backups.write_text(text)
        assert "FILE" in restore_hint(home)


@pytest.mark.medium
def test_a_new_job_does_not_write_into_the_folder_of_an_earlier_one(tmp_path: Path) -> None:
    """Of one that no record has: the database was lost, or restored from an older backup."""
    with served(tmp_path) as server:
        jobs = server.home.jobs
        log = jobs / "train" / "attempts" / "1" / "user_logs" / "std_log.txt"
        log.parent.mkdir(parents=True)
        log.write_text("of the earlier job\n")
        server.submit("train")
        assert not (jobs / "train" / "attempts").exists()
        (aside,) = [each for each in jobs.iterdir() if each.name.startswith(".unrecorded-")]
        assert (aside / log.relative_to(jobs / "train")).read_text() == "of the earlier job\n"
        (jobs / "train").mkdir(exist_ok=True)  # of a recorded job: it stays
        again = server.people.post(
            "/api/v1/jobs", json=JOB | {"spec": {**JOB["spec"], "name": "train"}}
        )
        assert again.status_code == 409
        assert (jobs / "train").is_dir()


def finding(allranks: Allranks) -> tuple[int, dict[str, str] | None]:
    """Doctor's exit code and what it finds of the database."""
    done = allranks("doctor", "--json")
    assert done.stderr == ""
    found = {each["what"]: each for each in json.loads(done.stdout)}
    return done.returncode, found.get("database")


@pytest.mark.slow
def test_doctor_finds_it(allranks: Allranks, home: Path, healthy: Path) -> None:
    home.mkdir()
    assert finding(allranks)[1] is None
    database, backup = home / "allranks.db", home / "a.tar"
    backup.touch()
    (home / "backups.json").write_text(json.dumps([str(backup)]))
    shutil.copy(healthy, database)
    assert finding(allranks)[1] is None
    overwrite(database, pages(healthy)["jobs"])
    code, found = finding(allranks)
    assert code == 1
    assert found
    assert found["state"] == "bad"
    assert found["found"].startswith(f"{database}: {MALFORMED}")
    assert f"allranks server restore {shlex.quote(str(backup))} --force" in found["hint"]
    shutil.copy(healthy, database)
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size // 2)
    code, found = finding(allranks)
    assert (code, bool(found)) == (1, True)
    database.write_bytes(b"")
    (home / "jobs" / "earlier").mkdir(parents=True)
    code, found = finding(allranks)
    assert found
    assert (code, "the database is empty, but" in found["found"]) == (1, True)
