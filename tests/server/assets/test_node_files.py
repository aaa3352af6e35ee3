"""The files that nodes of a job have sent, and what one on the disk of the home wrote."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from allranks.core.data.state_manifest import Entry, own
from allranks.core.plan import Gang, Plan, Rules, Task
from allranks.errors import NotFound
from allranks.server.assets import node_files, others_outputs
from allranks.server.assets.node_files import NodeFiles, files_in
from allranks.settings import Home, make
from allranks.store.database import open_database
from allranks.store.files.blobs import Blobs
from allranks.store.files.state_folders import State
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

LOG, CKPT = "artifacts/logs/a.log", "artifacts/outputs/ckpt"


class Job:
    """A job of three nodes of which the last is on the disk of the home."""

    def __init__(self, root: Path, database: Any) -> None:
        self.home, self.records, self.database = Home(root), Records(database), database
        self.files = NodeFiles(self.home, self.records, Blobs(self.home), 10**9)
        self.row = self.create()
        self.record = self.home.jobs / "j"
        (self.record / "artifacts/logs").mkdir(parents=True)
        (self.record / "artifacts/outputs").mkdir()
        self.folder = self.home.nodes / "j.files"

    def create(self) -> JobRow:
        task = Task("j", "x", "true", nodes=3, may_send=True, record=str(self.home.jobs / "j"))
        return self.records.create({}, Plan(Gang("j.1", 3, ("x",)), task, Rules(), "fake"))

    def delete(self) -> None:
        with self.database.begin() as connection:
            connection.execute(text("DELETE FROM jobs"))
        self.records._latest.forget("j")

    def state(self, node: int) -> State:
        return self.files._open(self.files._folder(self.row) / str(node))

    def attempt(self, number: int, went_at: float | None = None) -> None:
        record = self.row.record._replace(attempt=number, went_at=went_at)
        self.row = self.row._replace(record=record)

    def sync(self, node: int, puts: Any = (), after: int = 0) -> Any:
        report = {"attempt": self.row.record.attempt, "puts": [*puts], "after": after}
        return self.files.sync(self.row, self.state(node), node, report)

    def send(self, node: int, path: str, what: str) -> None:
        state, sha256 = self.state(node), hashlib.sha256(what.encode()).hexdigest()
        state.receive(sha256, 0, len(what), what.encode())
        entry = Entry("file", sha256, len(what), 10**9, 0o644)
        self.sync(node, [{"path": f"{own(node)}/{path}", "base": 0, "entry": list(entry)}])

    def paths(self, node: int) -> set[str]:
        return {*others_outputs.entries_of(self.state(node), node)}

    def assert_intact(self) -> None:
        contents = [*self.folder.glob("*/content/*")]
        assert contents
        assert [hashlib.sha256(content.read_bytes()).hexdigest() for content in contents] == [
            content.name for content in contents
        ]


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    make(Home(tmp_path / "home"))
    database = open_database(Home(tmp_path / "home").database)
    yield Job(tmp_path / "home", database)
    database.dispose()


def append(file: Path) -> None:
    with file.open("a") as log:
        log.write("more")


def test_what_ranks_on_the_home_write_in_place_changes_no_content(job: Job):
    job.files.note_start(job.row, 2, own_disk=False)
    for name in ("a", "b"):
        (job.record / f"artifacts/logs/{name}.log").touch()
    job.send(1, CKPT, "epoch 1")
    job.attempt(2)
    job.sync(0)
    append(job.record / LOG)
    append(job.record / CKPT)
    job.assert_intact()
    assert {LOG, "artifacts/logs/b.log", CKPT} <= job.paths(0)


def test_what_ranks_of_a_restart_write_in_place_changes_no_content(job: Job):
    (job.record / LOG).write_text("old")
    job.files.begin(job.row.plan.task, job.record, files_in(job.record))
    append(job.record / LOG)
    job.assert_intact()
    inodes = {content.stat().st_ino for content in job.folder.glob("*/content/*")}
    assert len(inodes) == 1, "each node has a copy of its own"


@pytest.mark.parametrize("kind", ["link", "pipe", "other text"])
def test_what_a_rank_puts_in_a_files_place_meanwhile_is_not_followed(
    job: Job, kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "secret").write_text("secret")
    (job.record / CKPT).write_text("epoch 1")

    def swap() -> None:
        (job.record / CKPT).unlink()
        if kind == "link":
            (job.record / CKPT).symlink_to(tmp_path / "secret")
        elif kind == "pipe":
            os.mkfifo(job.record / CKPT)
        else:
            (job.record / CKPT).write_text("epoch 2")

    def swapped(path: Path, *more: Any) -> Any:
        if path.name == "ckpt" and kind != "other text":
            swap()
        return entry_of(path, *more)

    entry_of, fill = node_files.entry_of, node_files._fill

    def filled(*args: Any) -> None:
        if kind == "other text":
            swap()
        fill(*args)

    monkeypatch.setattr(node_files, "entry_of", swapped)
    monkeypatch.setattr(node_files, "_fill", filled)
    job.files.note_start(job.row, 2, own_disk=False)
    (job.record / LOG).write_text("a line")
    job.attempt(2)
    thread = threading.Thread(target=job.sync, args=(0,), daemon=True)
    thread.start()
    thread.join(5)
    assert not thread.is_alive()
    assert job.paths(0) == {LOG}
    job.assert_intact()


def test_a_slow_node_holds_up_no_other(job: Job, monkeypatch: pytest.MonkeyPatch):
    give, slow, go_on = others_outputs.give, threading.Event(), threading.Event()

    def slowly(folder: Path, states: Any, node: int, *more: Any) -> list[str]:
        if node == 0:
            slow.set()
            assert go_on.wait(10)
        return give(folder, states, node, *more)

    monkeypatch.setattr(others_outputs, "give", slowly)
    job.send(2, CKPT, "epoch 1")
    job.attempt(2)
    first = threading.Thread(target=job.sync, args=(0,))
    second = threading.Thread(target=job.sync, args=(1,), daemon=True)
    first.start()
    assert slow.wait(5)
    second.start()
    second.join(5)
    was_held = second.is_alive()
    go_on.set()
    first.join(10)
    assert not was_held
    assert job.paths(0) == job.paths(1) == {CKPT}


def test_few_nodes_at_once_get_the_others_files(job: Job):
    async def taken() -> int:
        turns = [job.files.turn(job.row, job.state(0)) for _ in range(40)]
        for number, turn in enumerate(turns):
            try:
                await asyncio.wait_for(turn.__aenter__(), 0.01)
            except TimeoutError:
                return number
        return len(turns)

    assert asyncio.run(taken()) == 40
    job.attempt(2)
    assert asyncio.run(taken()) <= 4


def test_ranks_that_run_get_nothing(job: Job):
    job.send(0, CKPT, "epoch 1")
    job.attempt(2, went_at=1.0)  # under a version that gave nothing
    job.sync(0)
    job.sync(1)
    assert job.paths(1) == set()
    job.send(1, LOG, "of attempt 2")
    job.attempt(3)
    job.sync(0)
    job.sync(1)
    assert (job.paths(0), job.paths(1)) == ({CKPT, LOG}, {LOG})


def test_an_answer_says_what_there_was_before_the_others_files(job: Job):
    job.send(0, CKPT, "epoch 1")
    job.send(1, LOG, "a line")
    before = job.state(1).revision
    job.attempt(2)
    answer = job.sync(1, after=before)
    assert (answer["was"], answer["revision"] > before) == (before, True)


def test_a_job_that_is_forgotten_meanwhile_leaves_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
):
    give = others_outputs.give

    def forgotten(*args: Any) -> list[str]:
        notes = give(*args)
        job.delete()
        job.files.forget(job.row)
        return notes

    job.send(0, CKPT, "epoch 1")
    job.attempt(2)
    monkeypatch.setattr(others_outputs, "give", forgotten)
    with pytest.raises(NotFound):
        job.sync(1)
    assert not job.folder.exists()
    monkeypatch.undo()
    job.row = job.create()
    job.send(0, CKPT, "epoch 2")
    job.attempt(2)
    job.sync(1)
    assert job.paths(1) == {CKPT}
