"""What is laid over the code, and what is seen as the working set."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from allranks.agent.lifecycle import working_folder
from allranks.agent.lifecycle.collect_files import listing
from allranks.agent.lifecycle.working_folder import WorkingFolder, lay_over, set_code_times
from allranks.agent.state.working_folder import WorkTree
from allranks.core.data.working_set import ABOUT, FILES, About, Held

HOSTILE = ["a\nb", "ü'\"", "$(touch x)", "-rf", b"\xff".decode(errors="surrogateescape")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    code = tmp_path / "working" / "node-0" / FILES
    for name in ("train.py", "pkg/a.py", "pkg/b.py", "old/only.py"):
        (code / name).parent.mkdir(parents=True, exist_ok=True)
        (code / name).write_text(name)
    return tmp_path / "working"


def folder(root: Path) -> Path:
    return root / "node-0" / FILES


def seen(root: Path, tree: WorkTree) -> set[str]:
    start = f"node-0/{FILES}/"
    return {path.removeprefix(start) for path in tree.scan().files if path.startswith(start)}


def about(root: Path) -> About:
    return About.load((root / "node-0" / ABOUT).read_bytes())


def test_the_set_is_what_differs_from_the_code(root):
    work = folder(root)
    tree = WorkTree(root, 0, listing(work), 10**6)
    assert seen(root, tree) == set()
    assert not (root / "node-0" / ABOUT).exists()
    (work / "pkg/a.py").write_text("changed")
    (work / "pkg/b.py").unlink()
    (work / "old/only.py").unlink()
    (work / "old").rmdir()
    (work / "outputs").symlink_to("/record")
    for name in ("pkg/__pycache__/a.pyc", "outside"):
        (work / name).parent.mkdir(exist_ok=True)
        (work / name).write_text("x")
    (work / "checkpoints").mkdir()
    (work / "latest").symlink_to(work / "checkpoints")
    (work / "away").symlink_to("/etc")
    for name in HOSTILE:
        (work / "checkpoints" / name).write_text("c")
    expected = {"pkg/a.py", "outside", "checkpoints", "latest"}
    assert seen(root, tree) == expected | {f"checkpoints/{name}" for name in HOSTILE}
    assert about(root).removed == ("old/", "old/only.py", "pkg/b.py")
    scan = tree.scan()
    assert scan.files[f"node-0/{FILES}/latest"].target == "checkpoints"
    assert list(scan.unsupported) == [f"node-0/{FILES}/away"]
    files, removed = tree.current()
    assert (len(files), removed) == (2 + len(HOSTILE), 3)


def test_folders_with_other_nodes_files_are_listed_with_their_times(root):
    """They are of the set only if this node has files in them, too."""
    work = folder(root)
    code = listing(work)
    tree = WorkTree(root, 0, code, 10**6)
    for name in ("both/theirs", "theirs/theirs"):
        (work / name).parent.mkdir()
        (work / name).write_text("x")
    tree.set_laid_out(listing(work))
    (work / "both/mine").write_text("x")
    (work / "empty").mkdir()
    for time, name in enumerate(("pkg", "both", "theirs", "empty", "old")):
        os.utime(work / name, ns=(time, time))
    assert seen(root, tree) == {"both", "both/mine", "empty"}
    changes = tree.tell_changes(1, 2, ())
    assert changes.folders == {"pkg": 0, "both": 1, "theirs": 2, "empty": 3, "old": 4}


def test_folders_of_the_code_are_as_old_on_all_nodes(root):
    code = listing(folder(root))
    os.utime(folder(root) / "pkg/a.py", ns=(7, 7))
    os.utime(folder(root) / "pkg/b.py", ns=(5, 5))
    set_code_times(folder(root), code)
    assert (folder(root) / "pkg").stat().st_mtime_ns == 7


def test_above_the_bound_no_part_is_seen(root):
    tree = WorkTree(root, 0, listing(folder(root)), 10)
    (folder(root) / "large.pt").write_bytes(b"x" * 11)
    assert seen(root, tree) == set()
    assert about(root).over == 11
    (folder(root) / "large.pt").write_bytes(b"x" * 10)
    assert seen(root, tree) == {"large.pt"}
    assert about(root).over == 0


def test_a_set_laid_over_the_code_is_what_it_was(root, tmp_path):
    source, goal, place = tmp_path / "held", tmp_path / "goal", tmp_path / "place"
    for name in ("train.py", "pkg/a.py", "was-a-folder/x.py", "gone/deep/c.py"):
        (goal / name).parent.mkdir(parents=True, exist_ok=True)
        (goal / name).write_text("code")
    (goal / "was-a-file").write_text("code")
    before = "/old/work"
    set_ = source / FILES
    for name in ("train.py", "was-a-file/y.py", *(f"new/{name}" for name in HOSTILE)):
        (set_ / name).parent.mkdir(parents=True, exist_ok=True)
        (set_ / name).write_text("set")
    (set_ / "was-a-folder").write_text("set")
    (set_ / "empty").mkdir()
    (set_ / "latest").symlink_to(f"{before}/new")
    (set_ / "away").symlink_to("/etc")
    os.utime(set_ / "new", ns=(7, 7))
    (source / ABOUT).parent.mkdir()
    (source / ABOUT).write_bytes(About(("gone/", "gone/deep/c.py", "pkg/a.py"), before).dump())
    lay_over(source, goal, place)
    found = {
        os.path.relpath(os.path.join(above, name), goal)
        for above, folders, files in os.walk(goal)
        for name in (*folders, *files)
    }
    folders = {"pkg", "was-a-file", "new", "empty", "latest", "away"}
    files = {"train.py", "was-a-folder", "was-a-file/y.py", *(f"new/{name}" for name in HOSTILE)}
    assert found == folders | files
    assert {(goal / name).read_text() for name in files} == {"set"}
    assert os.readlink(goal / "latest") == f"{place}/new"
    assert os.readlink(goal / "away") == "/etc"
    assert (goal / "new").stat().st_mtime_ns == 7


def test_nothing_is_removed_through_links_of_the_code(root, tmp_path):
    """The code of a restart may have a link where the ranks of the first job had a folder."""
    source, goal, outside = tmp_path / "held", tmp_path / "goal", tmp_path / "outside"
    for folder_ in (source / ABOUT).parent, source / FILES, goal, outside:
        folder_.mkdir(parents=True)
    (outside / "mine").touch()
    (goal / "d").symlink_to(outside)
    removed = ("d/mine", "../outside/mine", "x/../d/mine", "/x", "..")
    (source / ABOUT).write_bytes(About(removed, "/old/work").dump())
    lay_over(source, goal, tmp_path / "place")
    assert (outside / "mine").exists()
    assert (goal / "d").is_symlink()


def test_an_agent_that_leaves_keeps_what_the_server_takes(tmp_path, monkeypatch):
    def removed_by_the_server(path: Path) -> None:
        raise FileNotFoundError(path)

    node = tmp_path / "home/nodes/j.1/0"
    for name in ("working/node-0/work", "attempt-1"):
        (node / name).mkdir(parents=True)
    task = SimpleNamespace(record=tmp_path / "home/jobs/j", in_place=None, sends_files=False)
    where = SimpleNamespace(folder=node, node=0)
    working = WorkingFolder(task, SimpleNamespace(where=where), Held())  # type: ignore[arg-type]
    working.remove_agent_folder()
    assert os.listdir(node) == ["working"]
    (node / "attempt-1").mkdir()
    monkeypatch.setattr(working_folder, "_remove", removed_by_the_server)
    working.remove_agent_folder()
