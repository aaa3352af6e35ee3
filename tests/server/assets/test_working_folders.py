"""Taking the working folder of an ended agent."""

import hashlib
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from allranks.agent.lifecycle.other_nodes_files import bring, copies_of
from allranks.core.data.node_changes import GONE, Change, NodeChanges
from allranks.core.data.state_manifest import Entry
from allranks.core.data.working_set import ABOUT, CHANGES, FILES, About
from allranks.core.lifecycle.decide import Node
from allranks.core.plan import Place
from allranks.server.assets import taken_folders
from allranks.server.assets.working_folders import WorkingFolders
from allranks.settings import Home
from allranks.statuses import NodeState
from allranks.store.files.blobs import Blobs
from allranks.store.files.code_listing import CodeFile
from allranks.store.files.state_folders import Put, State


@pytest.fixture
def source(tmp_path: Path) -> Path:
    place = tmp_path / "node" / FILES
    (place / "pkg").mkdir(parents=True)
    (place / "pkg/new").write_text("x")
    return place


def taken(source: Path, goal: Path) -> set[str]:
    taken_folders.take(source, goal, {"pkg/a.py": CodeFile(1, 1, "")})
    return {str(path.relative_to(goal / FILES)) for path in (goal / FILES).rglob("*")}


def test_a_killed_agents_copies_of_other_nodes_files_are_left_out(tmp_path, source):
    other = tmp_path / "other"
    (other / "check").mkdir(parents=True)
    changes = {"pkg/a.py": Change(1, GONE)}
    for name in ("check/last", "check/changed", "check/removed"):
        (other / name).write_text("theirs")
        changes[name] = Change(1, "file", 6, (other / name).stat().st_mtime_ns)
    (source / "pkg/a.py").write_text("code")
    (source.parent / "about").mkdir()
    before = {"check/last": Change(1, "file"), "check/other": Change(2, "file")}
    (source.parent / CHANGES).write_bytes(NodeChanges(1, 2, before).dump())
    assert bring(changes, dict.fromkeys(changes, other), source.parent) == []
    assert len(copies_of(source.parent)) == 4
    (source / "check/changed").write_text("mine")
    (source / "check/removed").unlink()
    goal = tmp_path / "goal"
    assert taken(source, goal) == {"pkg", "pkg/new", "check", "check/changed"}
    # What another node removed is not this one's removal, and what it replaced none, either.
    assert About.load((goal / ABOUT).read_bytes()).removed == ("check/removed",)
    assert NodeChanges.load((goal / CHANGES).read_bytes()).paths.keys() == {"check/other"}


def test_links_in_a_read_only_folder_leave_their_targets_as_they_are(tmp_path, source, monkeypatch):
    def refused(old: Path, new: Path) -> None:
        if os.path.isdir(os.path.dirname(new)) and not os.stat(old.parent).st_mode & 0o200:
            raise PermissionError(13, "Permission denied", str(old))
        rename(old, new)

    rename = os.rename
    monkeypatch.setattr(taken_folders.os, "rename", refused)  # also as root
    data = tmp_path / "data"
    data.mkdir(mode=0o750)
    (source / "pkg/data").symlink_to(data)
    (source / "pkg/new").chmod(0o440)
    (source / "pkg").chmod(0o555)
    assert taken(source, tmp_path / "goal") == {"pkg", "pkg/new", "pkg/data"}
    assert data.stat().st_mode & 0o777 == 0o750
    assert (tmp_path / "goal" / FILES / "pkg/new").stat().st_mode & 0o777 == 0o440


@pytest.mark.parametrize(
    ("state", "place", "prefers"),
    [
        (NodeState.LOST, Place("a", "h"), True),
        (NodeState.LOST, None, False),  # killed while it was prepared: the folder is complete
        (NodeState.EXITED, Place("a", "h"), False),
    ],
)
def test_what_was_sent_is_used_if_ranks_were_writing(tmp_path, state, place, prefers):
    home = Home(tmp_path)
    folders = WorkingFolders(home, Blobs(tmp_path / "blobs"), 1)
    head = home.jobs / "j/working-folder/0/head"
    head.parent.mkdir(parents=True)
    State(head.parent).commit([Put("node-0/work/sent", 0, Entry("folder"))])
    plan = SimpleNamespace(
        rules=SimpleNamespace(max_attempts=2),
        task=SimpleNamespace(fresh_work=False, in_place=None),
    )
    record = SimpleNamespace(nodes=(Node(state, place=place),))
    row = SimpleNamespace(name="j", plan=plan, record=record)
    source = tmp_path / "work"
    (source / "made").mkdir(parents=True)
    assert folders._prefers_sent(row, 0, source) is prefers
    # Of what was there when the attempt began, not all was sent yet.
    data = NodeChanges(1, 2, {"made": Change(1, "file")}).dump()
    sha256 = hashlib.sha256(data).hexdigest()
    state = folders._open(folders._folder("j") / "0")
    state.receive(sha256, 0, len(data), data)
    state.commit([Put(f"node-0/{CHANGES}", 0, Entry("file", sha256, len(data)))])
    assert not folders._prefers_sent(row, 0, source)


def test_nothing_is_written_through_links_of_the_job(tmp_path: Path, source: Path) -> None:
    outside, record = tmp_path / "outside", tmp_path / "jobs" / "j"
    outside.mkdir()
    record.mkdir(parents=True)
    (record / "working-folder").symlink_to(outside)
    with pytest.raises(OSError, match="symbolic links"):
        taken(source, record / "working-folder" / "0")
    assert [*outside.iterdir()] == []

    (record / "working-folder").unlink()
    target = record / "working-folder" / "0"
    target.mkdir(parents=True)
    (target / "about.new").symlink_to(outside / "about")
    (target / "about").symlink_to(outside)
    with pytest.raises(OSError, match="directory"):
        taken(source, target)
    assert [*outside.iterdir()] == []
