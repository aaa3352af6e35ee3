"""Keeping what ranks wrote into their working folder, on real disks."""

import os
import socket
import subprocess
from pathlib import Path

import pytest

from allranks.agent.lifecycle import collect_files
from allranks.agent.lifecycle.collect_files import Deadline, OutOfTime, keep, listing, set_aside
from allranks.core.data.kept_files import FILES, File, Summary, Why
from allranks.core.plan import Task

NAMES = [
    "a\nb",
    "ü'\"",
    "$(touch x)",
    "-rf",
    "n" * 255,
    b"\xff\xfe".decode(errors="surrogateescape"),
]


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A working folder as it is laid out."""
    made = tmp_path / "wo'rk"
    (made / "package").mkdir(parents=True)
    (made / "train.py").write_text("print()")
    (made / "package" / "data.bin").write_bytes(b"1234")
    (made / "outputs").symlink_to(tmp_path / "elsewhere")
    return made


@pytest.fixture
def task(tmp_path: Path) -> Task:
    return Task(job="j", experiment="e", command="true", record=str(tmp_path / "record"))


def never() -> None:
    pass


def kept(task: Task) -> dict[str, bytes]:
    root = Path(task.record, "artifacts", "work")
    return {
        str(path.relative_to(root)): b"" if path.is_symlink() else path.read_bytes()
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_what_is_new_and_what_changed_is_kept(work, task):
    before = listing(work)
    (work / "package" / "data.bin").write_bytes(b"5678")
    (work / "ck" / "1").mkdir(parents=True)
    (work / "empty").mkdir()
    for name in NAMES:
        (work / "ck" / "1" / name).write_bytes(os.fsencode(name))
    (work / "ck" / "latest").symlink_to("1")
    inode = (work / "ck" / "1" / "-rf").stat().st_ino
    found = keep(task, 0, work, before, never)
    expected = {f"ck/1/{name}": os.fsencode(name) for name in NAMES}
    assert kept(task) == {**expected, "package/data.bin": b"5678", "ck/latest": b""}
    assert (found.files, found.left_out) == (len(NAMES) + 1, ())
    moved = Path(task.record, "artifacts", "work", "ck", "1", "-rf")
    assert moved.stat().st_ino == inode, "copied, and not moved"


def test_a_job_that_writes_nothing_leaves_nothing(work, task):
    before = listing(work)
    (work / "train.py").chmod(0o755)
    (work / "package" / "data.bin").unlink()
    assert keep(task, 0, work, before, never) == Summary()
    assert not Path(task.record).exists()


def test_ignore_files_do_not_rule_what_is_kept_but_caches_and_secrets_stay_out(work, task):
    (work / ".gitignore").write_text("*.ckpt\nruns/\n")
    (work / ".amlignore").write_text("*\n")
    (work / ".old").mkdir()
    (work / ".old" / "CACHEDIR.TAG").write_text("came with the code")
    before = listing(work)
    for name in ("__pycache__/a.pyc", "package/__pycache__/b.pyc", ".git/HEAD"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x")
    for name, mark in ((".venv", "pyvenv.cfg"), (".cache", "CACHEDIR.TAG")):
        (work / name / "deep").mkdir(parents=True)
        (work / name / mark).write_text("x")
        (work / name / "deep" / "file").write_text("x")
    (work / "runs").mkdir()
    (work / "runs" / "events").write_text("1")
    (work / "last.ckpt").write_text("2")
    (work / ".env").write_text("TOKEN=1")
    (work / "runs" / "tls.key").write_text("k")
    found = keep(task, 0, work, before, never)
    assert kept(task) == {"runs/events": b"1", "last.ckpt": b"2"}
    named = {group.why: [file.path for file in group.named] for group in found.left_out}
    assert named[Why.SECRET] == [".env", "runs/tls.key"]
    assert {*named[Why.CACHE]} == {".venv/", ".cache/"}
    assert len(named) == 2


def test_what_is_above_the_limit_is_named(work, task):
    before = listing(work)
    for name, size in (("small", 10), ("middle", 80), ("large", 300)):
        (work / name).write_bytes(bytes(size))
    found = keep(task._replace(keep_work=100), 0, work, before, never)
    assert kept(task).keys() == {"small", "middle"}
    (above,) = found.left_out
    assert (above.why, above.named) == (Why.LIMIT, (File("large", 300),))
    assert not Path(task.record, "attempts").exists()
    assert keep(task._replace(keep_work=0), 0, work, before, never) == Summary()


def test_every_file_that_is_left_out_is_listed(work, task):
    before = listing(work)
    for number in range(30):
        (work / f"{number:02}.ckpt").write_bytes(bytes(100))
        os.utime(work / f"{number:02}.ckpt", (number, number))
    found = keep(task._replace(keep_work=250), 1, work, before, never, attempt=3)
    assert kept(task).keys() == {"29.ckpt", "28.ckpt"}
    assert len(found.left_out[0].named) == 20
    listed = Path(task.record, "attempts/3/not-kept/node-1.txt").read_text().splitlines()
    assert {line.split()[1] for line in listed} == {f"{number:02}.ckpt" for number in range(28)}


def test_files_of_every_kind(work, task, tmp_path):
    before = listing(work)
    os.mkfifo(work / "pipe")
    os.link(work / "train.py", work / "second-name")
    (work / "a").write_text("a")
    os.link(work / "a", work / "b")
    (work / "out").symlink_to("../record")
    (work / "absolute").symlink_to(tmp_path)
    (work / "loop").symlink_to("loop")
    with (work / "sparse").open("wb") as file:
        file.truncate(5 << 20)
    here = os.open(work, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"/proc/self/fd/{here}/socket")
        found = keep(task, 0, work, before, never)
    os.close(here)
    assert kept(task).keys() == {"second-name", "a", "b", "sparse", "loop"}
    assert Path(task.record, "artifacts/work/sparse").stat().st_blocks == 0
    assert found.left_out == ()


def test_a_folder_of_its_own_in_the_place_of_outputs_is_kept(work, task):
    before = listing(work)
    (work / "outputs").unlink()
    (work / "outputs").mkdir()
    (work / "outputs" / "model.pt").write_text("m")
    keep(task, 0, work, before, never)
    assert kept(task) == {"outputs/model.pt": b"m"}


def test_each_node_has_a_folder_and_each_attempt_its_own(work, task):
    task = task._replace(nodes=2)
    before = listing(work)
    (work / "model.pt").write_text("first")
    keep(task, 1, work, before, never)
    set_aside(task, 0, 2)  # which has left nothing
    set_aside(task, 1, 2)
    assert kept(task) == {}
    (work / "model.pt").write_text("second")
    keep(task, 1, work, before, never)
    assert kept(task) == {"node-1/model.pt": b"second"}
    listed = Path(task.record, "attempts/1/work/node-1.txt").read_text()
    assert listed.split() == ["5", "model.pt"]


def test_of_fresh_working_folders_each_attempt_keeps_its_files(work, task):
    task = task._replace(fresh_work=True)
    (work / "model.pt").write_text("first")
    keep(task, 0, work, {}, never)
    set_aside(task, 0, 2)
    assert kept(task) == {}
    assert Path(task.record, "attempts/1/work/model.pt").read_text() == "first"


def test_files_that_another_attempt_needs_stay(work, task):
    before = listing(work)
    (work / "model.pt").write_text("m")
    keep(task, 0, work, before, never, stay=True)
    assert kept(task) == {"model.pt": b"m"}
    assert (work / "model.pt").read_text() == "m"


def test_a_link_in_the_record_leads_nowhere_else(work, task, tmp_path):
    before = listing(work)
    (tmp_path / "others").mkdir()
    Path(task.record, "artifacts").mkdir(parents=True)
    Path(task.record, "artifacts", "work").symlink_to(tmp_path / "others")
    (work / "model.pt").write_text("m")
    keep(task, 0, work, before, never)
    assert kept(task) == {"model.pt": b"m"}
    assert not [*(tmp_path / "others").iterdir()]


def test_folders_that_cannot_be_read_or_named_are_told(work, task):
    before, deep = listing(work), os.open(work, os.O_RDONLY)
    for _ in range(30):  # no system opens a path of so many bytes
        os.mkdir("d" * 200, dir_fd=deep)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    (work / "model.pt").write_text("m")
    found = keep(task, 0, work, before, never)
    assert kept(task) == {"model.pt": b"m"}
    (closed,) = found.left_out
    assert (closed.why, closed.said) == (Why.FAILED, "cannot be read")


@pytest.mark.slow
def test_a_hundred_thousand_files_are_the_most(work, task):
    before = listing(work)
    (work / "many").mkdir()
    folder = os.open(work / "many", os.O_RDONLY)
    for number in range(FILES + 5):
        os.close(os.open(str(number), os.O_CREAT | os.O_WRONLY, dir_fd=folder))
    os.close(folder)
    (work / "model.pt").write_text("m")
    found = keep(task, 0, work, before, never)
    assert found.files == FILES
    assert [(each.why, each.files) for each in found.left_out] == [(Why.COUNT, 6)]
    assert Path(task.record, "artifacts/work/model.pt").exists(), "the top comes first"


@pytest.fixture
def disk(tmp_path: Path):
    """Another disk, of 2 MB."""
    made = tmp_path / "disk"
    made.mkdir()
    if subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "none", made], capture_output=True
    ).returncode:
        pytest.skip("mounting a small disk needs root, and a container that allows it")
    yield made
    subprocess.run(["umount", "--lazy", made], check=True)


def test_to_another_disk_files_are_copied(work, task, disk):
    task, before = task._replace(record=str(disk)), listing(work)
    with (work / "sparse").open("wb") as file:
        file.write(b"head")
        file.truncate(1 << 30)
        file.seek(512 << 20)
        file.write(b"middle")
    (work / "run.sh").write_text("#!/bin/sh")
    (work / "run.sh").chmod(0o755)
    (work / "latest").symlink_to("run.sh")
    found = keep(task, 0, work, before, never)
    assert (found.files, found.left_out) == (2, ())
    got = disk / "artifacts" / "work"
    assert os.access(got / "run.sh", os.X_OK)
    assert os.readlink(got / "latest") == "run.sh"
    assert (got / "sparse").stat().st_mtime_ns == (work / "sparse").stat().st_mtime_ns
    with (got / "sparse").open("rb") as file:
        assert file.read(5) == b"head\0"
        file.seek(512 << 20)
        assert file.read(7) == b"middle\0"


def test_a_full_disk_is_told_and_leaves_no_halves(work, task, disk):
    task, before = task._replace(record=str(disk)), listing(work)
    for name, size in (("small", 10), ("large", 3 << 20), ("larger", 4 << 20)):
        (work / name).write_bytes(os.urandom(size))
    found = keep(task, 0, work, before, never)
    (failed,) = found.left_out
    assert (failed.why, failed.files, failed.said) == (
        Why.FAILED,
        2,
        "no space left on device",
    )
    assert os.listdir(disk / "artifacts" / "work") == ["small"]


def test_a_job_that_has_to_end_copies_no_longer_than_its_grace(work, task, disk):
    task, before = task._replace(record=str(disk)), listing(work)
    (work / "model.pt").write_text("m")
    order = {"do": "go", "why": ""}
    deadline = Deadline(lambda: order, 0.0)
    deadline.check()
    order = {"do": "stop", "why": "PEER_FAILED"}
    deadline.check()
    order = {"do": "stop", "why": "CANCELED"}
    deadline.check()
    with pytest.raises(OutOfTime):
        deadline.check()
    found = keep(task, 0, work, before, deadline.check)
    assert [each.why for each in found.left_out] == [Why.TIME]
    assert not os.path.lexists(disk / "artifacts" / "work")


def test_a_folder_that_may_not_be_changed(work, task, monkeypatch):
    """Its files cannot be renamed, but linked. (Root may rename all, so it is refused here.)"""
    before = listing(work)
    (work / "model.pt").write_text("m")
    inode = (work / "model.pt").stat().st_ino

    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(collect_files.os, "rename", refused)
    assert keep(task, 0, work, before, never).files == 1
    assert Path(task.record, "artifacts/work/model.pt").stat().st_ino == inode
