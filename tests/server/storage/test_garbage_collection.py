"""Clearing a home, step by step: what fails, what breaks off, and what comes in meanwhile."""

import errno
import hashlib
import json
import os
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest

from allranks import file_locks, folder_trees
from allranks.agent.data import cache
from allranks.agent.environments.virtual_environments import READY, recipe_hash
from allranks.core.data.garbage_rules import Kind
from allranks.core.plan import Gang, InputTask, Plan, Recipe, Rules, Task
from allranks.engines import pinned_code
from allranks.errors import Conflict, NotFound
from allranks.events import Event
from allranks.events import Kind as EventKind
from allranks.server.api.routes import gc
from allranks.server.storage import garbage_collection, inventory
from allranks.server.storage.garbage_collection import GarbageCollection, Options, Report
from allranks.settings import Home, make
from allranks.store.database import open_database
from allranks.store.files.trees import GOING
from allranks.store.jobs.records import Records

OLD = time.time() - 40 * 86400
MONTH = 30 * 86400.0
RECIPE = Recipe("3.11", ("six",))


class House:
    """A home with a record and no server."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root)
        make(self.home)
        self.database = open_database(self.home.database)
        self.records = Records(self.database)
        self.coming = threading.Lock()

    def clear(self, older_than: float = MONTH, endpoints=(), **asked: object) -> Report:
        options = Options(older_than, **asked)
        return GarbageCollection(
            self.home, self.records, self.coming, options, endpoints=lambda: {*endpoints}
        ).run()

    def job(
        self, name: str, *, ended: float | None = None, reads=None, endpoint=None, **task: object
    ) -> None:
        plan = Plan(Gang(f"{name}.1", 1, ("x",)), Task(name, "e", "true", **task), Rules(1), "fake")
        spec = {"inputs": reads or {}, "properties": {"allranks.endpoint": endpoint}}
        row = self.records.create(spec, plan)
        put(self.home.jobs / name / "artifacts" / "model")
        if ended is not None:
            data = {"status": "Completed", "exit_code": 0, "error": None}
            finished = Event(EventKind.FINISHED, ended, data=data)
            self.records.apply(row, [finished], ended_at=ended)
            with (
                closing(sqlite3.connect(self.home.database)) as connection,
                connection,
            ):  # by whatever way it ended
                connection.execute("UPDATE jobs SET live = 0 WHERE name = ?", [name])

    def blob(self, data: bytes, at: float = OLD) -> str:
        digest = hashlib.sha256(data).hexdigest()
        put(self.home.blobs / digest[:2] / digest, data, at)
        return digest

    def code(self, *parts: bytes, at: float = OLD) -> str:
        named = [self.blob(part, at) for part in parts]
        return self.blob(json.dumps({"chunks": named}).encode(), at)

    def environment(self, name: str, recipe: Recipe | None = RECIPE, at: float = OLD) -> Path:
        folder = self.home.environments / name
        put(folder / "lib" / "package.py")
        told = {"recipe": recipe_hash(recipe)} if recipe is not None else {}
        put(folder / READY, json.dumps({"python": "3.11", "packages": {}, **told}).encode(), at)
        return folder


def put(path: Path, data: bytes = b"some data", at: float = OLD) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))


def age(root: Path) -> None:
    for path in [*root.rglob("*"), root]:
        os.utime(path, (OLD, OLD), follow_symlinks=False)


def kinds(report: Report) -> list[str]:
    return sorted(f"{each.kind}: {each.name[:24]}" for each in report.items)


def paths(report: Report) -> set[str]:
    return {each.path for each in report.items}


A, B = "a" * 24, "b" * 24


@pytest.fixture
def house(tmp_path):
    made = House(tmp_path / "ho'me x")
    yield made
    made.database.dispose()


def test_environments_of_live_jobs_and_of_late_stay(house):
    house.environment(A)
    house.environment(f"{A}-12345678")
    other = house.environment(B, Recipe("3.12"))
    recent = house.environment("c" * 24, Recipe("3.13"), at=time.time() - 60)
    house.job("running", recipe=RECIPE)
    report = house.clear()
    assert paths(report) == {str(other)}
    assert report.items[0].why == "not used for 40 days"
    assert house.clear(0.0).items[0].path == str(recent)
    assert sorted(each.name for each in house.home.environments.iterdir()) == [A, f"{A}-12345678"]


def test_an_environment_was_used_until_the_last_job_that_had_it_ended(house):
    house.environment(A)
    house.job("ended", ended=time.time() - 86400, recipe=RECIPE)
    assert house.clear().items == []
    assert kinds(house.clear(3600.0)) == [f"environments: {A}"]


def test_one_that_does_not_say_what_it_is_made_of_stays_while_jobs_have_any(house):
    house.environment(A, recipe=None)
    house.job("running", recipe=Recipe("3.9"))
    assert house.clear(0.0).items == []


def test_what_is_being_made_stays_and_what_was_broken_off_goes(house):
    shelf = house.home.environments
    for name in (f"{A}.host.x1", f"{B}.host.x2"):
        put(shelf / name / "environment" / "pyvenv.cfg")
    for name in (f"{A}.lock", f"{A}.log", f"{B}.lock", f"{B}.log", "not ours"):
        put(shelf / name)
    for name in (f"{A}.host.x1", f"{B}.host.x2"):
        age(shelf / name)
    held = file_locks.take(shelf / f"{A}.lock")
    report = house.clear()
    os.close(held)
    assert paths(report) == {str(shelf / f"{B}{end}") for end in (".host.x2", ".lock", ".log")}
    assert sorted(each.name for each in shelf.iterdir()) == [
        f"{A}.host.x1",
        f"{A}.lock",
        f"{A}.log",
        "not ours",
    ]


def test_chunks_that_are_shared_stay_with_the_one_that_stays(house):
    kept = house.code(b"shared", b"own")
    gone = house.code(b"shared", b"of nobody")
    fresh = house.code(b"just sent", at=time.time())
    house.job("ended", ended=OLD, code=kept)
    report = house.clear(0.0)
    digests = {hashlib.sha256(b"of nobody").hexdigest(), gone}
    assert {each.name for each in report.items} == digests
    assert {str(each.kind) for each in report.items} == {"code"}
    left = {path.name for path in house.home.blobs.glob("*/*")}
    assert {kept, fresh} < left
    assert not left & digests


def test_replicas_whose_endpoint_is_gone_go_without_being_asked_for(house):
    house.job("plain", ended=OLD)
    house.job("a-1", ended=OLD, endpoint="a")
    house.job("b-1", ended=OLD, endpoint="b")
    house.job("b-2", ended=time.time(), endpoint="b")
    assert [item.name for item in house.clear(endpoints=("a",)).items] == ["b-1"]


def test_jobs_that_have_only_just_ended_are_counted(house):
    house.job("plain", ended=time.time())
    house.job("a-1", ended=time.time(), endpoint="a")
    house.job("b-1", ended=time.time(), endpoint="b")
    house.job("b-2", endpoint="b")
    report = house.clear(older_than=0.0, endpoints=("a",))
    assert (report.items, report.recent_jobs) == ([], {"b-1", "b-2"})
    assert house.clear(endpoints=("a",)).recent_jobs == set()
    assert house.clear(older_than=0.0, jobs=True).recent_jobs == {"plain", "a-1", "b-1"}


def test_records_of_jobs_go_only_when_asked_and_with_all_that_was_theirs(house):
    code = house.code(b"x")
    house.job("old", ended=OLD, code=code)
    house.job("late", ended=time.time() - 3600)
    house.job("running")
    assert house.clear().items == []
    report = house.clear(jobs=True)
    assert kinds(report)[-1] == "jobs: old"
    assert [each.kind for each in report.items].count(Kind.CODE) == 2, "its code with it"
    assert sorted(each.name for each in house.home.jobs.iterdir()) == ["late", "running"]
    with pytest.raises(NotFound):
        house.records.get("old")
    assert house.records.events("old") == []
    with pytest.raises(Conflict, match="was deleted"):
        house.job("old")


def test_a_dry_run_tells_the_same_and_changes_nothing(house):
    house.job("old", ended=OLD, code=house.code(b"x"))
    house.environment(A)
    put(house.home.nodes / "old.1" / "0" / "outbox.jsonl")
    age(house.home.nodes / "old.1")
    before = sorted(house.home.root.rglob("*"))
    told = house.clear(dry_run=True, jobs=True)
    assert sorted(house.home.root.rglob("*")) == before
    assert house.records.get("old").ended_at == OLD
    done = house.clear(jobs=True)
    assert [each[:4] for each in done.items] == [each[:4] for each in told.items]
    assert sum(e.size for e in done.items) == sum(e.size for e in told.items) > 0
    assert {each.kind for each in done.items} == {
        Kind.JOB,
        Kind.CODE,
        Kind.ENVIRONMENT,
        Kind.NODE,
    }
    assert house.clear(jobs=True).items == []


@pytest.mark.parametrize("by", ["address", "path", "folder"])
def test_a_job_whose_outputs_are_read_stays(house, by):
    house.job("first", ended=OLD)
    path = f"{house.home.jobs}/first/named-outputs/model"
    if by == "address":
        house.job("second", reads={"x": {"path": "azureml://jobs/first/outputs/model/paths/"}})
    elif by == "path":
        house.job("second", inputs=(InputTask("x", source=path),))
    else:
        house.job("second", in_place=path)
    assert house.clear(jobs=True).items == []


def test_one_that_cannot_be_removed_is_told_and_the_others_go(house, monkeypatch):
    stuck = house.environment(A)
    other = house.environment(B)
    real = Path.rename

    def rename(path: Path, goal: Path) -> Path:
        if path == stuck:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, goal)

    monkeypatch.setattr(Path, "rename", rename)
    report = house.clear()
    assert paths(report) == {str(other)}
    assert report.failed == [garbage_collection.Failed(str(stuck), "permission denied")]
    assert stuck.exists()


def test_what_a_job_needs_whose_record_cannot_be_removed_stays(house, monkeypatch):
    code = house.code(b"x")
    house.job("first", ended=OLD)
    reads = {"x": {"path": "azureml://jobs/first/outputs/model"}}
    house.job("second", ended=OLD, reads=reads, code=code)

    def rename(path: Path, goal: Path) -> Path:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "rename", rename)
    report = house.clear(jobs=True)
    assert report.items == []
    assert [each.path for each in report.failed] == [str(house.home.jobs / "second")]
    assert house.records.get("second").plan.task.code == code


def test_code_stays_as_long_as_one_list_of_it_cannot_be_read(house, monkeypatch):
    code = house.code(b"x")
    house.blob(b"nobody's")
    house.job("ended", ended=OLD, code=code)
    environment = house.environment(A)
    real = Path.open

    def open_file(path: Path, *args, **options) -> IO:
        if path.name == code:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, *args, **options)

    monkeypatch.setattr(Path, "open", open_file)
    report = house.clear()
    assert paths(report) == {str(environment)}
    assert [each.message for each in report.failed] == ["permission denied"]


def test_broken_off_in_the_middle_it_goes_on_the_next_time(house, monkeypatch):
    house.environment(A)
    house.job("old", ended=OLD)

    class Killed(BaseException):
        pass

    def remove(path: Path) -> None:
        os.unlink(path / "artifacts" / "model")
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(folder_trees, "remove", remove)
        with pytest.raises(Killed):
            house.clear(jobs=True)
    (left,) = house.home.jobs.iterdir()
    assert left.name.startswith(GOING)
    assert [str(each.kind) for each in house.clear(dry_run=True).items] == [
        "half removed",
        "environments",
    ]
    house.clear()
    assert list(house.home.jobs.iterdir()) == []
    assert list(house.home.environments.iterdir()) == []


@pytest.mark.parametrize("jobs", [True, False])
def test_a_job_that_comes_in_meanwhile_keeps_what_it_needs(house, monkeypatch, jobs):
    house.environment(A)
    code = house.code(b"x")
    house.job("first", ended=OLD)
    real = inventory.size

    def size(path: Path) -> int:
        """It comes after the decision and before the deed."""
        if house.records.created == 1:
            reads = {"x": {"path": "azureml://jobs/first/outputs/model/paths/a"}}
            house.job("second", recipe=RECIPE, code=code, reads=reads)
        return real(path)

    monkeypatch.setattr(inventory, "size", size)
    assert house.clear(0.0, jobs=jobs).items == []


def test_what_is_used_meanwhile_stays(house, monkeypatch):
    folder = house.environment(A)
    real = inventory.size

    def size(path: Path) -> int:
        os.utime(folder / READY)
        return real(path)

    monkeypatch.setattr(inventory, "size", size)
    assert house.clear(3600.0).items == []


def test_checkouts_go_by_commit_and_whole_when_all_are_old(house):
    code = house.home.code
    for place, commit in (("one", "c1"), ("one", "c2"), ("two", "c3"), ("three", "c4")):
        put(code / place / commit / "train.py")
        put(code / place / "repository" / "HEAD")
    age(code)
    os.utime(code / "one" / "c1")
    house.job("in-place", ended=OLD, in_place=str(code / "three" / "c4"))
    assert paths(house.clear()) == {str(code / "one" / "c2"), str(code / "two")}
    assert house.clear(0.0).items == [], "what was used within the hour is being read"


def test_working_folders_of_gangs_that_are_over(house):
    for name in ("ended.1", "run.ning.1", "run.ning.2", "young.1"):
        put(house.home.nodes / name / "0" / "outbox.jsonl")
        age(house.home.nodes / name)
    os.utime(house.home.nodes / "young.1" / "0" / "outbox.jsonl")
    house.job("run.ning")
    assert kinds(house.clear(0.0)) == ["working folders: ended.1"]


def test_folders_that_were_made_read_only_go_too(house):
    folder = house.environment(A)
    (folder / "lib").chmod(0o500)
    assert kinds(house.clear()) == [f"environments: {A}"]
    assert list(house.home.environments.iterdir()) == []


def test_links_lead_nowhere(house, tmp_path):
    mine = tmp_path / "mine"
    put(mine / "data")
    folder = house.environment(A)
    (folder / "link").symlink_to(mine)
    (house.home.environments / B).symlink_to(mine)
    age(house.home.environments)
    house.clear(0.0)
    assert (mine / "data").exists()
    assert list(house.home.environments.iterdir()) == []


def test_what_is_linked_elsewhere_frees_nothing(house, tmp_path):
    folder = house.environment(A)
    put(folder / "lib" / "large", b"x" * 500_000)
    whole = inventory.size(folder)
    os.link(folder / "lib" / "large", tmp_path / "cached")
    assert inventory.size(folder) <= whole - 400_000
    os.link(folder / "lib" / "large", folder / "again")
    (tmp_path / "cached").unlink()
    assert inventory.size(folder) >= 500_000


def test_two_at_once_are_one_too_many():
    busy = SimpleNamespace(gc_lock=threading.Lock(), home=Home(Path("/x")), data=None)
    busy.data = SimpleNamespace(versions=list)
    with busy.gc_lock, pytest.raises(Conflict, match="already running"):
        gc.clear({"older_than_seconds": 0}, busy)


def test_cached_data_goes_when_nobody_uses_it(house):
    there = house.home.cache
    for name in ("unused", "read", "fresh"):
        put(there / name / cache.MANIFEST, b'{"files": []}')
    for name in ("half.part", "made.part", "left.gone"):
        put(there / name / "data" / "x")
    age(there)
    os.utime(there / "fresh" / cache.MANIFEST)
    held = [file_locks.take(there / "made.lock"), cache.acquire(there / "read")]
    os.utime(there / "read" / cache.MANIFEST, (OLD, OLD))
    assert sorted(Path(each).name for each in paths(house.clear())) == [
        "half.part",
        "left.gone",
        "unused",
    ]
    for each in held:
        os.close(each)
    house.job("running")
    with closing(sqlite3.connect(house.home.database)) as connection, connection:
        connection.execute("UPDATE jobs SET created_at = ?", [OLD - 86400])
    assert house.clear().items == [], "it may be read on another host"


def test_a_job_whose_output_is_a_data_asset_stays(house):
    for name in ("first", "second", "third"):
        house.job(name, ended=OLD)
    at = (f"{house.home.jobs}/first/named-outputs/m", "azureml://jobs/second/outputs/m", "s3://x/y")
    protected = inventory.behind(house.home, at)
    assert protected == {"first", "second"}
    assert kinds(house.clear(jobs=True, protected=protected)) == ["jobs: third"]


def test_what_a_killed_server_received_in_part_goes(house):
    """Large contents of states, small ones that have a number behind their name, and blobs."""
    digest, now = "a" * 64, time.time()
    for path in (
        house.home.states / "named" / "s" / "coming" / digest,
        house.home.states / "named" / "s" / "coming" / f"{digest}.0011ffee",
        house.home.states / "of-jobs" / "j" / "coming" / f"{digest}.0011ffee",
        house.home.blobs / "aa" / f"{digest}.0011ffee.part",
    ):
        put(path, b"x", OLD)
        put(path.with_name(f"b{path.name}"), b"x", now)
    house.clear()
    left = [path for path in house.home.root.rglob("*a*") if digest in path.name]
    assert len(left) == 4
    assert all(path.name.startswith("b") for path in left)


def test_copies_of_the_agents_code_stay_as_long_as_a_job_may_run_from_them(house, monkeypatch):
    copies = [house.home.pinned / name for name in ("before", "used", "own", ".making-x")]
    for copy, used in zip(copies, (OLD, time.time() - 7200, OLD, OLD), strict=True):
        put(copy / "allranks" / "version.py")
        os.utime(copy, (used, used))
    monkeypatch.setattr(pinned_code, "_own", {house.home.pinned: copies[2]})
    # It was submitted before the copy `used` was replaced by another.
    house.job("runs")
    with closing(sqlite3.connect(house.home.database)) as connection, connection:
        connection.execute("UPDATE jobs SET created_at = ?", [time.time() - 8000])
    assert {each.name for each in house.clear().items} == {"before", ".making-x"}
    with closing(sqlite3.connect(house.home.database)) as connection, connection:
        connection.execute("UPDATE jobs SET live = 0, ended_at = created_at")
    assert {each.name for each in house.clear().items} == {"used"}
    assert [path.name for path in house.home.pinned.iterdir()] == ["own"]
