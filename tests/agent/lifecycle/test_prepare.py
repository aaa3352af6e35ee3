"""Laying out the code on a node: whatever its submitter wrote into it stays below its folder."""

import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from allranks.agent.lifecycle import prepare
from allranks.core.job import code_packages
from allranks.core.plan import Container, InputTask, OutputTask, Task
from allranks.errors import AllranksError
from allranks.snapshot.take import take_snapshot
from tests.hostile.harness import Place
from tests.hostile.names import chain

HOSTILE = [
    "a\nb",
    "ü'\"",
    "$(touch x)",
    "-rf",
    "n" * 200,
    "d" * 120 + "/" + "f" * 120 + "/" + "x" * 120,
    b"\xff\xfe".decode(errors="surrogateescape"),
]


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


def test_all_names_come_through(tar, tmp_path):
    work = tmp_path / "wo'rk $x"
    work.mkdir()
    prepare.unpack(tar, work)
    found = {
        os.path.relpath(Path(at, name), work) for at, _, names in os.walk(work) for name in names
    }
    assert found == {*HOSTILE, "run.sh", "link"}
    for name in HOSTILE:
        assert (work / name).read_bytes() == os.fsencode(name)
    assert os.access(work / "run.sh", os.X_OK)
    assert os.readlink(work / "link") == "run.sh"


def test_modes_are_as_the_umask_says(tar, tmp_path):
    before = os.umask(0o077)
    try:
        prepare.unpack(tar, tmp_path)
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)
    assert (tmp_path / "run.sh").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "-rf").stat().st_mode & 0o777 == 0o600


def test_what_is_no_tar(tmp_path):
    (tmp_path / "code.tar").write_bytes(b"x" * 5000)
    (tmp_path / "work").mkdir()
    with pytest.raises(AllranksError, match="the job's code cannot be unpacked"):
        prepare.unpack(tmp_path / "code.tar", tmp_path / "work")


def test_no_code(tmp_path):
    (tmp_path / "code.tar").touch()
    prepare.unpack(tmp_path / "code.tar", tmp_path)


@pytest.mark.parametrize("attack", ["chain", "through a link", "pipe"])
def test_code_that_would_be_written_outside(tmp_path, attack):
    place = Place(tmp_path)
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, str(place.outside)
    pipe = tarfile.TarInfo("pipe")
    pipe.type = tarfile.FIFOTYPE
    entries = {
        "chain": chain("base", place),
        "through a link": [link, tarfile.TarInfo("link/secret")],
        "pipe": [pipe],
    }[attack]
    code = tmp_path / "code.tar"
    code.write_bytes(b"".join(each.tobuf(tarfile.PAX_FORMAT) for each in entries))
    before = place.surroundings()
    with pytest.raises(AllranksError, match="in the job's code"):
        prepare.unpack(code, place.goal)
    assert place.surroundings() == before


@pytest.mark.parametrize("which", [code_packages.LIST, code_packages.FOLDER])
def test_a_list_of_packages_that_is_a_link(tmp_path, which):
    place = Place(tmp_path)
    mine = place.outside / "imports"
    mine.write_bytes(b"/a\0b")
    (place.goal / which).parent.mkdir(exist_ok=True)
    (place.goal / which).symlink_to(mine if which == code_packages.LIST else place.outside)
    assert prepare.set_packages_aside(place.goal, tmp_path / "place", tmp_path / "packages") is None
    assert mine.read_bytes() == b"/a\0b"


def test_code_in_outputs_is_not_moved_through_links_of_ranks(tmp_path):
    place = Place(tmp_path)
    before = place.surroundings()
    artifacts, work = place.goal / "record" / "artifacts", place.goal / "work"
    for folder in (artifacts / "outputs", work / "outputs" / "a" / "b"):
        folder.mkdir(parents=True)
    (artifacts / "outputs" / "a").symlink_to(place.outside)
    (work / "outputs" / "a" / "b" / "rc").write_text("code")
    (work / "outputs" / "plain").write_text("code")
    task = Task("j", "e", "true", record=str(place.goal / "record"))
    prepare.prepare(task, place.goal, prepare.LaidOut(work), 0.0, {})
    assert place.surroundings() == before
    assert (work / "outputs" / "plain").read_text() == "code"


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


def test_what_a_job_wrote_in_place_is_collected_through_no_link_out_of_its_folders(tmp_path: Path):
    """It ran in a container, perhaps: its links lead elsewhere here."""
    place = Place(tmp_path)
    work, record = place.goal / "work", place.goal / "record"
    outputs, recorded = work / "outputs", record / "artifacts" / "outputs"
    for folder in (outputs / "sub", recorded):
        folder.mkdir(parents=True)
    (work / "checkpoint").write_text("weights")
    for name in ("plain", "secret", "over", "sub/new"):
        (outputs / name).write_text("mine")
    (outputs / "best").symlink_to("../checkpoint")
    (outputs / "stolen").symlink_to(place.outside / "secret")
    (recorded / "over").symlink_to(place.outside / "secret")
    (recorded / "sub").symlink_to(place.outside)
    before = place.surroundings()
    inside = Task("j", "e", "true", record=str(record), in_place=str(work))
    task = inside._replace(container=Container("podman", "image"))
    said = prepare.collect(task, 0, prepare.Work(work, {}, 0.0, {}))
    assert "some outputs could not be collected" in said
    assert place.surroundings() == before
    assert {path.name: path.read_text() for path in recorded.iterdir() if path.is_file()} == {
        "plain": "mine",
        "secret": "mine",
        "over": "mine",
        "best": "weights",
    }
    shutil.rmtree(outputs)
    outputs.symlink_to(place.outside)
    assert "leads out" in prepare.collect(task, 0, prepare.Work(work, {}, 0.0, {}))
    assert not (recorded / ".ssh").exists()
    # Without a container it saw what this process sees: its outputs may lie elsewhere.
    assert prepare.collect(inside, 0, prepare.Work(work, {}, 0.0, {})) == ""
    assert (recorded / "secret").read_text() == (place.outside / "secret").read_text()


def test_what_a_job_wrote_in_its_session_is_collected_through_the_sessions_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    work, record, host = tmp_path / "work", tmp_path / "record", tmp_path / "host"
    (host / "artifacts/outputs").mkdir(parents=True)
    work.mkdir()
    (work / "outputs").symlink_to(host / "artifacts/outputs")
    (work / "outputs/new").write_text("mine")
    (work / "outputs/link").symlink_to(tmp_path / "place.json")
    place = {"work": str(work), "record": str(host), "base": {}, "variables": {}}
    (tmp_path / "place.json").write_text(json.dumps(place))
    monkeypatch.setenv("ALLRANKS_AGENT_PLACE", str(tmp_path / "place.json"))
    task = Task("j", "e", "true", record=str(record), in_place=str(work), inside="dev")
    said = prepare.collect(task, 0, prepare.Work(work, {}, 0.0, {}))
    assert "a link leads out" in said
    assert [path.name for path in (record / "artifacts/outputs").iterdir()] == ["new"]


def test_no_folder_is_made_through_a_link_of_an_earlier_attempt(tmp_path: Path):
    place = Place(tmp_path)
    record, work = place.goal / "record", place.goal / "work"
    for folder in (record, work):
        folder.mkdir()
    (record / "artifacts").symlink_to(place.outside)
    (record / "named-outputs").symlink_to(place.outside)
    before = place.surroundings()
    output = OutputTask("model", str(record / "named-outputs" / "model"), False)
    task = Task("j", "e", "true", record=str(record), outputs=(output,))
    with pytest.raises(AllranksError, match="cannot write the job's record"):
        prepare.prepare(task, place.goal, prepare.LaidOut(work), 0.0, {})
    assert place.surroundings() == before
    (record / "artifacts").unlink()
    with pytest.raises(OSError):
        prepare.prepare(task, place.goal, prepare.LaidOut(work), 0.0, {})
    assert place.surroundings() == before


def test_code_in_outputs_never_replaces_what_another_node_puts_there_meanwhile(
    tmp_path: Path, monkeypatch
):
    record, work = tmp_path / "record", tmp_path / "work"
    (work / "outputs").mkdir(parents=True)
    (work / "outputs" / "a").write_text("code")
    copy = shutil.copy2

    def slow(source, target, **options):
        copy(source, target, **options)
        (record / "artifacts" / "outputs" / "a").write_text("of a rank")

    monkeypatch.setattr(shutil, "copy2", slow)
    task = Task("j", "e", "true", record=str(record))
    prepare.prepare(task, tmp_path, prepare.LaidOut(work), 0.0, {})
    outputs = record / "artifacts" / "outputs"
    assert {path.name: path.read_text() for path in outputs.iterdir()} == {"a": "of a rank"}


def test_a_downloaded_input_is_copied_once_however_its_links_lead(tmp_path: Path):
    """Two links that lead back would be followed 2^40 times."""
    place = Place(tmp_path)
    agents = place.goal / "home" / "nodes"
    folder, source = agents / "j.1" / "0" / "attempt-1", place.goal
    folder.mkdir(parents=True)
    (agents / "other.1").mkdir()
    (source / "d" / "below").mkdir(parents=True)
    (source / "d" / "a").write_text("1")
    for name, to in (("d/back", ".."), ("d/again", ".."), ("latest", "d"), ("d/file", "a")):
        (source / name).symlink_to(to)
    task = Task("j", "e", "true", record=str(folder / "r"))
    task = task._replace(inputs=(InputTask("x", source=str(source), mode="download"),))
    work = prepare.prepare(task, folder, prepare.LaidOut(folder), 0.0, {})
    copy = Path(work.paths["inputs.x"])
    assert sorted(os.listdir(copy)) == ["d", "home", "latest"]
    assert [*(copy / "home").iterdir()] == []
    assert sorted(os.listdir(copy / "d")) == ["a", "again", "back", "below", "file"]
    assert (copy / "latest" / "file").read_text() == "1"
    assert (copy / "d" / "back").resolve() == (copy / "d" / "again").resolve() == copy.resolve()


def test_a_large_input_is_copied_no_further_once_the_job_is_canceled(tmp_path: Path):
    (tmp_path / "large").write_bytes(bytes(prepare._PIECE * 3))
    task = Task("j", "e", "true", record=str(tmp_path / "r"))
    item = InputTask("x", source=str(tmp_path / "large"), mode="download")
    task, folder = task._replace(inputs=(item,)), tmp_path / "a"
    folder.mkdir()

    def go_on() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare.prepare(task, folder, prepare.LaidOut(folder), 0.0, {}, go_on)
    assert (tmp_path / "a" / "inputs" / "x" / "large").stat().st_size == prepare._PIECE
