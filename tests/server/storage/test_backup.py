"""A home in one file and back: while it is used, cut short, damaged, and with agents that know
more than a restored record."""

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import threading
from pathlib import Path
from typing import Any

import psutil
import pytest
import sqlalchemy as sa

from allranks.core.data.state_manifest import Entry
from allranks.core.job.list_filters import Query
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.core.transfer_progress import Progress
from allranks.errors import Conflict, ServerError, UsageError
from allranks.events import Event, Kind
from allranks.server.storage import backup, restore
from allranks.settings import Home, make
from allranks.store.database import open_database, opened_database, version_of
from allranks.store.files.blobs import Blobs
from allranks.store.files.state_folders import HEAD, NAMED, OF_JOBS, Put, State, matches
from allranks.store.jobs.records import Records
from allranks.store.key_values import Settings
from tests.support import processes_of, until


def plan(name: str) -> Plan:
    return Plan(Gang(f"{name}.1", 1, ("agent",)), Task(name, "ex", "true", 1), Rules(1), "fake")


def quiet(_: Progress) -> None:
    pass


def begin(records: Records, name: str) -> None:
    """Let a job be running."""
    told = {"address": "10.0.0.1", "host": "h", "ports": [7000]}
    records.apply(records.get(name), [Event(Kind.SUBMITTED, 1.0)])
    said = [Event(Kind.HELLO, 1.0, node=0, seq=1), Event(Kind.READY, 1.0, node=0, seq=2, data=told)]
    records.append(name, said)
    records.apply(records.get(name), [Event(Kind.GO, 1.0)])


def filled(root: Path, *jobs: str) -> Home:
    """A home with those jobs, of which the first runs, a blob, a model, and output of each job."""
    home = Home(root)
    make(home)
    database = open_database(home.database)
    records = Records(database)
    for name in jobs:
        records.create({"command": "true"}, plan(name))
        logs = home.jobs / name / "attempts" / "1" / "user_logs"
        logs.mkdir(parents=True)
        (logs / "std_log.txt").write_text(f"{name} of {root.name}\n")
    if jobs:
        begin(records, jobs[0])
    Settings(database).set("datastores.uploads", {"birds": "allranks-uploads/0"})
    database.dispose()
    home.token.write_text("secret\n")
    home.token.chmod(0o600)
    text = root.name.encode()
    with Blobs(home.blobs).receive(hashlib.sha256(text).hexdigest()) as take:
        take(text)
    tree = home.models / "abc" / "files"
    tree.mkdir(parents=True)
    (tree / "m o.bin").write_bytes(b"model")
    (tree / "m o.bin").chmod(0o444)
    (home.jobs / ".going-x").mkdir()
    return home


def names(home: Home) -> set[str]:
    with opened_database(home.database) as database:
        rows = Records(database).find(Query(archived=None, limit=1_000_000))
        return {row.name for row in rows}


def upload_folders(home: Home) -> Any:
    with opened_database(home.database) as database:
        return Settings(database).get("datastores.uploads")


def tree(root: Path) -> dict[str, bytes | str]:
    """All that lies there, but for the database and what was put aside."""
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file() and "allranks.db" not in path.name
        if path.name not in ("server.lock", "backups.json")
        if not path.relative_to(root).parts[0].startswith("before-restore")
    }


@pytest.fixture
def old(tmp_path: Path) -> Home:
    return filled(tmp_path / "o'ld", "one", "two")


@pytest.fixture
def file(old: Home, tmp_path: Path) -> Path:
    return Path(backup.write(old, tmp_path / "b.tar", True, quiet).file)


@pytest.mark.medium
def test_a_home_comes_back_as_it_was(old: Home, file: Path, tmp_path: Path):
    assert file.stat().st_mode & 0o777 == 0o600
    new = Home(tmp_path / "new")
    report = restore.restore(new, file, False, quiet)
    assert (report.jobs, report.live, report.aside) == (2, ["one", "two"], None)
    assert names(new) == {"one", "two"}
    assert new.token.stat().st_mode & 0o777 == 0o600
    assert (new.models / "abc/files/m o.bin").stat().st_mode & 0o777 == 0o444
    # Both homes may go on, and neither removes the other's uploads.
    assert upload_folders(old)
    assert not upload_folders(new)
    found, was = tree(new.root), tree(old.root)
    # By the record it has not begun: its gang, if there is one, sends its output anew.
    assert was.pop("jobs/two/attempts/1/user_logs/std_log.txt")
    assert found == was
    assert not new.restoring.exists()


def test_without_files_there_are_no_records_of_jobs(old: Home, tmp_path: Path):
    folder = tmp_path / "folder"
    folder.mkdir()
    report = backup.write(old, folder, False, quiet)
    assert report.file.startswith(f"{folder}/allranks-")
    assert [path.name for path in folder.iterdir()] == [Path(report.file).name]
    new = Home(tmp_path / "new")
    restore.restore(new, Path(report.file), False, quiet)
    assert not list(new.jobs.iterdir())
    assert names(new) == {"one", "two"}
    assert list(new.blobs.glob("*/*"))


def test_others_write_while_a_backup_is_taken(tmp_path: Path):
    home = filled(tmp_path / "home", "first")
    database, stop, begun = open_database(home.database), threading.Event(), threading.Event()

    def write() -> None:
        records, number = Records(database), 0
        while not stop.is_set():
            records.create({}, plan(f"j{number:05}"))
            begun.set()
            number += 1

    thread = threading.Thread(target=write)
    thread.start()
    assert begun.wait(30)
    try:
        files = [backup.write(home, tmp_path / f"{n}.tar", False, quiet).file for n in range(3)]
    finally:
        stop.set()
        thread.join()
        database.dispose()
    for number, each in enumerate(files):
        new = Home(tmp_path / f"new{number}")
        restore.restore(new, Path(each), False, quiet)
        jobs = sorted(names(new) - {"first"})
        assert jobs
        assert jobs == [f"j{number:05}" for number in range(len(jobs))], "all of one moment"


def test_states_are_whole_however_they_change_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Another file of each comes, and the one before goes, with every file that is listed."""
    home = filled(tmp_path / "home")
    states = [State(home.states / kind / "s") for kind in (NAMED, OF_JOBS)]
    number, links = itertools.count(), itertools.count()
    scandir, link = os.scandir, os.link

    def change() -> None:
        for state in states:
            data = b"%d" % next(number)
            digest = hashlib.sha256(data).hexdigest()
            state.receive(digest, 0, len(data), data)
            was = state.entries().get("shared/n")
            entry = Entry("file", digest, len(data), 1, 0o600)
            state.commit([Put("shared/n", was.seq if was else 0, entry)])
            state.keep("j", 1, "nobody was writing")

    def listed(path: Path) -> Any:
        change()
        return scandir(path)

    def linked(path: Path, goal: Path) -> None:
        if next(links) % 3 == 0:
            change()
        link(path, goal)

    change()
    monkeypatch.setattr(os, "scandir", listed)
    monkeypatch.setattr(os, "link", linked)
    file = Path(backup.write(home, tmp_path / "b.tar", True, quiet).file)
    monkeypatch.undo()
    assert [path.name for path in home.states.glob("*/.*")] == []
    new = Home(tmp_path / "new")
    restore.restore(new, file, False, quiet)
    for state in states:
        found = State(new.states / state.folder.relative_to(home.states))
        assert found.entries()
        for entries in (found.entries(), *(each.entries for each in found.versions())):
            assert all(matches(found.content(e.sha256), e.sha256) for e in entries.values())


def test_a_state_that_is_deleted_meanwhile_is_not_in_the_backup_in_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    home, link = filled(tmp_path / "home"), os.link
    state = State(home.states / NAMED / "s")
    for text in (b"a", b"b"):
        digest = hashlib.sha256(text).hexdigest()
        state.receive(digest, 0, 1, text)
        entry = Entry("file", digest, 1, 1, 0o600)
        state.commit([Put(f"shared/{text.decode()}", 0, entry)])

    def linked(path: Path, goal: Path) -> None:
        state.delete()
        link(path, goal)

    monkeypatch.setattr(os, "link", linked)
    file = Path(backup.write(home, tmp_path / "b.tar", True, quiet).file)
    monkeypatch.undo()
    new = Home(tmp_path / "new")
    restore.restore(new, file, False, quiet)
    assert State(new.states / NAMED / "s").entries() == {}


def test_what_is_there_is_neither_overwritten_nor_lost(old: Home, file: Path, tmp_path: Path):
    with pytest.raises(Conflict, match="the file exists already"):
        backup.write(old, file, True, quiet)
    home = filled(tmp_path / "used", "one", "mine")
    before = tree(home.root)
    with pytest.raises(Conflict, match="this home has 2 jobs"):
        restore.restore(home, file, False, quiet)
    assert tree(home.root) == before
    aside = Path(str(restore.restore(home, file, True, quiet).aside))
    assert names(home) == {"one", "two"}
    assert names(Home(aside)) == {"one", "mine"}, "the whole old database, its log folded in"
    assert not (home.jobs / "mine").exists(), "a new job of that name would write into it"
    assert (aside / "jobs/mine/attempts/1/user_logs/std_log.txt").exists()
    assert (home.jobs / "one/attempts/1/user_logs/std_log.txt").read_text() == "one of o'ld\n"


@pytest.mark.medium
def test_a_backup_leaves_a_postgresql_database_of_another_version_as_it_is(
    postgres: Any, tmp_path: Path
):
    """Its server runs, perhaps, and the backup is for the way back to that version."""
    home = Home(tmp_path)
    url = str(postgres.database())
    home.database_url.write_text(url)
    with opened_database(url) as database, database.begin() as connection:
        connection.execute(sa.text("DROP TABLE endpoint_events, endpoints"))
        connection.execute(sa.text("UPDATE alembic_version SET version_num = 'v3'"))
    with pytest.raises(ServerError, match="of another version") as caught:
        backup.write(home, tmp_path / "b.tar", False, quiet)
    assert "server restart --no-backup" in str(caught.value.hint)
    assert version_of(url) == "v3"
    assert not (tmp_path / "b.tar").exists()


@pytest.mark.parametrize("with_files", [False, True])
def test_own_states_of_jobs_that_the_restored_record_does_not_know_are_put_aside(
    old: Home, tmp_path: Path, with_files: bool
):
    home = filled(tmp_path / "used", "one", "mine")
    for each, kind, name in ((old, OF_JOBS, "one"), (home, OF_JOBS, "mine"), (home, NAMED, "mine")):
        (each.states / kind / name).mkdir(parents=True)
        (each.states / kind / name / HEAD).write_text(name)
    file = backup.write(old, tmp_path / "b.tar", with_files, quiet).file
    aside = Path(str(restore.restore(home, Path(file), True, quiet).aside))
    there = [str(head.parent.relative_to(home.states)) for head in home.states.glob("*/*/head")]
    assert there == ([f"{OF_JOBS}/one"] if with_files else [f"{NAMED}/mine"])
    assert (aside / "states" / OF_JOBS / "mine" / HEAD).exists()


@pytest.mark.parametrize("hostile", ["name", "link", "link above"])
def test_a_backup_moves_and_removes_nothing_outside_of_the_home(
    old: Home, tmp_path: Path, hostile: str
):
    outside = tmp_path / "outside"
    (outside / "attempts" / "9").mkdir(parents=True)
    name = "one"
    if hostile == "name":
        name = "../../outside"
        with opened_database(old.database) as database, database.begin() as connection:
            connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
            connection.exec_driver_sql("UPDATE jobs SET name=? WHERE name='one'", (name,))
    link = old.jobs / "one" if hostile == "link" else old.jobs / "one" / "attempts"
    shutil.rmtree(link)
    link.symlink_to(outside if hostile == "link" else outside / "attempts")
    file = backup.write(old, tmp_path / "b.tar", True, quiet).file
    home = filled(tmp_path / "used", "mine")
    if hostile != "name":
        restore.restore(home, Path(file), True, quiet)
    else:
        with pytest.raises(UsageError, match="no job's name"):
            restore.restore(home, Path(file), True, quiet)
    assert (outside / "attempts" / "9").exists()


def test_what_a_job_put_among_its_attempts_stops_no_restore(old: Home, tmp_path: Path):
    for name in ("evil", "²", "1.5"):
        (old.jobs / "one" / "attempts" / name).mkdir()
    file = backup.write(old, tmp_path / "b.tar", True, quiet).file
    assert restore.restore(old, Path(file), True, quiet).jobs == 2


def test_a_file_that_is_a_hole_fills_no_disk_and_is_named(old: Home, tmp_path: Path):
    attempt = old.jobs / "one" / "attempts" / "1"
    with (attempt / "hole").open("wb") as made:
        made.truncate(1 << 42)
    with (attempt / "little").open("wb") as made:
        made.truncate(1 << 20)
    report = backup.write(old, tmp_path / "b.tar", True, quiet)
    assert report.left_out == ["jobs/one/attempts/1/hole"]
    assert report.bytes < 4 << 20
    home = Home(tmp_path / "new")
    restore.restore(home, Path(report.file), False, quiet)
    assert (home.jobs / "one" / "attempts" / "1" / "little").stat().st_size == 1 << 20


def test_a_home_whose_database_is_damaged_is_restored_with_force(file: Path, tmp_path: Path):
    home = filled(tmp_path / "broken")
    home.database.write_bytes(b"this is no database at all" * 100)
    with pytest.raises(Conflict, match="cannot read the jobs"):
        restore.restore(home, file, False, quiet)
    restore.restore(home, file, True, quiet)
    assert names(home) == {"one", "two"}


def test_a_damaged_backup_changes_nothing(file: Path, tmp_path: Path):
    whole = file.read_bytes()
    home = filled(tmp_path / "home", "mine")
    before = tree(home.root)
    cut = [b"", whole[:700], whole[: len(whole) // 2], whole[:-12000]]
    flipped = []
    for word in (b"secret\n", b"SQLite format 3", b"one of o'ld", b"model"):
        place = whole.index(word)
        flipped.append(whole[:place] + b"#" + whole[place + 1 :])
    for number, damaged in enumerate((*cut, *flipped, b"no tar at all" * 99)):
        bad = tmp_path / f"bad{number}.tar"
        bad.write_bytes(damaged)
        with pytest.raises((UsageError, ServerError)) as caught:
            restore.restore(home, bad, True, quiet)
        assert caught.value.hint
        assert tree(home.root) == before
        assert not home.restoring.exists()


@pytest.mark.slow
def test_one_that_is_killed_while_it_puts_things_in_place_is_finished(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """At every single step of it, and at every one of the second try."""

    class Killed(BaseException):
        pass

    steps, rename = 0, Path.rename

    def dying(path: Path, goal: Path) -> Path:
        nonlocal steps
        if steps == 0:
            raise Killed
        steps -= 1
        return rename(path, goal)

    monkeypatch.setattr(Path, "rename", dying)
    number = 0
    while True:
        steps = 10**6
        home = filled(tmp_path / "homes" / str(number), "one", "mine")
        steps = number
        try:
            restore.restore(home, file, True, quiet)
            done = True
        except Killed:
            done = False
        begun = (home.restoring / "note.json").exists()
        steps = 10**6
        if begun:
            steps = 1
            with contextlib.suppress(Killed):
                restore.finish(home)
            steps = 10**6
        restore.finish(home)
        expected = {"one", "two"} if begun or done else {"one", "mine"}
        assert names(home) == expected
        assert not home.restoring.exists()
        if done:
            break
        number += 1
    assert number > 6


def gangs(home: Path) -> set[str]:
    """The gangs that have a process."""
    found = set()
    for process in processes_of(home):
        with contextlib.suppress(psutil.Error):
            found.add(process.environ().get("ALLRANKS_GANG", "").partition(".")[2])
    return found - {""}


SCRIPT = "until [ -e '{0}/{1}' ]; do echo $((i++)); sleep 0.02; done; echo end"


@pytest.mark.slow
def test_agents_that_know_more_than_a_restored_record(allranks, home, tmp_path):
    """One job goes on; one has ended meanwhile; one the record does not know."""

    def job(name: str, nodes: int = 1) -> None:
        script = SCRIPT.format(tmp_path, name)
        done = allranks("run", "--detach", "--name", name, "-n", nodes, "--", "bash", "-c", script)
        assert done.returncode == 0, done.stderr

    def show(name: str) -> dict:
        return json.loads(allranks("job", "show", name, "--json").stdout)

    def began(name: str) -> None:
        until(lambda: allranks("job", "logs", name).stdout.count("\n") > 2)

    job("goes-on", 2)
    # The record knows of its launch, and nothing of what its agents say.
    until(lambda: "submitted" in allranks("job", "events", "goes-on").stdout)
    taken = allranks("server", "backup", tmp_path / "early.tar", "--json")
    assert json.loads(taken.stdout)["jobs"] == 1
    job("ended")
    began("ended")
    began("goes-on")
    assert allranks("server", "backup", tmp_path / "late.tar", "--with-files").returncode == 0
    (tmp_path / "ended").touch()
    assert allranks("job", "wait", "ended").returncode == 0
    job("unknown")
    began("unknown")
    refused = allranks("server", "restore", "--yes", tmp_path / "late.tar", "--force")
    assert "a server of this home is running" in refused.stderr
    for file in ("late.tar", "early.tar"):
        server = psutil.Process(json.loads((home / "server.json").read_text())["pid"])
        server.kill()
        server.wait(10)
        done = allranks("server", "restore", "--yes", tmp_path / file, "--force")
        assert done.returncode == 0, done.stderr
        assert "goes-on" in done.stderr
        began("goes-on")
        if file == "late.tar":
            lost = json.loads(allranks("job", "wait", "ended", "--json").stdout)
            assert (lost["status"], lost["error"]["reason"]) == ("Failed", "NODE_LOST")
            assert "job 'unknown' not found" in allranks("job", "show", "unknown").stderr
            until(lambda: "unknown.1" not in gangs(home))
    assert gangs(home) == {"goes-on.1"}, "and no second one"
    (tmp_path / "goes-on").touch()
    done = allranks("job", "wait", "goes-on")
    assert done.returncode == 0, done.stderr
    assert (show("goes-on")["attempts"], show("goes-on")["launches"]) == (1, 1)
    for rank in range(2):
        lines = allranks("job", "logs", "goes-on", "--rank", rank).stdout.splitlines()
        assert lines == [*map(str, range(len(lines) - 1)), "end"]
    assert "Traceback" not in (home / "server.log").read_text()
    until(lambda: not os.listdir(home / "nodes"))
