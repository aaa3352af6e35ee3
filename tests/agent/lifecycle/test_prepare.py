"""Unpacking the code on a node: by its own tar, and where it has none that would do."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from allranks.agent.lifecycle import prepare
from allranks.core.plan import Task
from allranks.errors import AllranksError
from allranks.snapshot.take import take_snapshot

HOSTILE = [
    "a\nb",
    "ü'\"",
    "$(touch x)",
    "-rf",
    "n" * 200,
    "d" * 120 + "/" + "f" * 120 + "/" + "x" * 120,
    b"\xff\xfe".decode(errors="surrogateescape"),
]
WAYS: list[Callable[[Path, Path], None]] = [prepare.unpack, prepare.unpack_in_python]


def packed(code: Path, goal: Path) -> Path:
    """The snapshot of a folder, as a node gets it."""
    taken = take_snapshot(code)
    with goal.open("wb") as file:
        for digest in taken.parts:
            with taken.open(digest) as part:
                shutil.copyfileobj(part, file)
    return goal


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    for name in HOSTILE:
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_bytes(os.fsencode(name))
    (code / "run.sh").write_text("#!/bin/sh\n")
    (code / "run.sh").chmod(0o750)
    (code / "link").symlink_to("run.sh")
    return packed(code, tmp_path / "code.tar")


@pytest.mark.parametrize("way", WAYS)
def test_all_names_come_through(tar, tmp_path, way):
    work = tmp_path / "wo'rk $x"
    work.mkdir()
    way(tar, work)
    found = {
        os.path.relpath(Path(at, name), work) for at, _, names in os.walk(work) for name in names
    }
    assert found == {*HOSTILE, "run.sh", "link"}
    for name in HOSTILE:
        assert (work / name).read_bytes() == os.fsencode(name)
    assert os.access(work / "run.sh", os.X_OK)
    assert os.readlink(work / "link") == "run.sh"


def test_a_node_without_a_tar_that_would_do(tar, tmp_path, monkeypatch):
    small = tmp_path / "bin"
    small.mkdir()
    monkeypatch.setenv("PATH", str(small))
    for number, script in enumerate((None, "#!/bin/sh\necho BusyBox v1\n")):
        if script is not None:
            (small / "tar").write_text(script)
            (small / "tar").chmod(0o755)
        work = tmp_path / f"work{number}"
        work.mkdir()
        prepare.unpack(tar, work)
        assert (work / "run.sh").exists()


@pytest.mark.parametrize("way", WAYS)
def test_what_is_no_tar(tmp_path, way):
    (tmp_path / "code.tar").write_bytes(b"x" * 5000)
    (tmp_path / "work").mkdir()
    with pytest.raises(AllranksError, match="cannot unpack the code"):
        way(tmp_path / "code.tar", tmp_path / "work")


def test_code_in_logs_is_there_and_what_ranks_log_is_collected(tmp_path):
    code, record = tmp_path / "co de", tmp_path / "re'cord"
    for name in ("logs/__init__.py", "logs/deep/a.py", "outputs/__init__.py"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text("of the code")
    (code / "logs" / "link").symlink_to("deep")
    works = [tmp_path / f"attempt {number}" for number in (1, 2)]
    expected = "of the code"
    for folder in works:
        folder.mkdir()
        task = Task("j", "e", "true", record=str(record))
        work = folder / "work"
        work.mkdir()
        prepare.unpack(packed(code, folder / "code.tar"), work)
        prepare.prepare(task, folder, prepare.LaidOut(work), 0.0, {})
        assert (work / "logs" / "link" / "a.py").read_text() == expected
        expected = folder.name
        (work / "logs" / "deep" / "a.py").write_text(expected)
        (work / "outputs" / "result").write_text("x")
    assert (record / "artifacts" / "logs" / "deep" / "a.py").read_text() == "attempt 2"
    assert (record / "artifacts" / "outputs" / "result").exists()
    assert not [*record.rglob("*.part")]


def test_what_a_rank_writes_after_the_first_node_has_collected_is_collected(tmp_path: Path):
    """Ranks of one job need not end together."""
    task = Task("j", "e", "true", record=str(tmp_path / "record"), in_place=str(tmp_path), nodes=2)
    work = prepare.Work(tmp_path, {}, 0.0, {})
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    (outputs / "early").write_text("1")
    assert prepare.collect(task, 1, work) == ""  # left to the first node
    assert not Path(task.record, "artifacts").exists()
    assert prepare.collect(task, 0, work) == ""
    (outputs / "late").write_text("2")
    assert prepare.collect(task, 1, work) == ""
    collected = Path(task.record, "artifacts", "outputs").iterdir()
    assert {path.name for path in collected} == {"early", "late"}
