"""What a node gets of the others' working folders, and that no copy counts as the node's own."""

import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

from allranks.agent.lifecycle.other_nodes_files import bring, copies_of, lacking, remove_copies
from allranks.agent.state.working_folder import replace_file
from allranks.core.data.node_changes import GONE, Change
from allranks.core.data.working_set import CHANGES, FILES

HOSTILE = ["a\nb", "ü'\"", "-rf", b"\xff".decode(errors="surrogateescape")]
COPIED = {f"check/{name}" for name in HOSTILE}


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own" / FILES).mkdir(parents=True)
    return tmp_path / "own"


@pytest.fixture
def other(tmp_path: Path) -> Path:
    (tmp_path / "other/check").mkdir(parents=True)
    for name in HOSTILE:
        (tmp_path / "other/check" / name).write_text("theirs")
    return tmp_path / "other"


def files(part: Path) -> set[str]:
    return {
        str(path.relative_to(part / FILES))
        for path in (part / FILES).rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def changes(other: Path, **more: Change) -> dict[str, Change]:
    """All that is there, as its node tells."""
    found = dict(more)
    for path in other.rglob("*"):
        status, name = path.lstat(), str(path.relative_to(other))
        if path.is_symlink():
            found[name] = Change(1, "link", target=os.readlink(path))
        elif not path.is_dir():
            found[name] = Change(1, "file", status.st_size, status.st_mtime_ns)
    return found


def brought(own: Path, other: Path, **more: Change) -> list[str]:
    made = changes(other, **more)
    return bring(made, dict.fromkeys(made, other), own)


def test_changes_of_other_nodes_replace_what_is_there(own, other):
    for name in ("mine", "old", "deep/old"):
        (own / FILES / name).parent.mkdir(exist_ok=True)
        (own / FILES / name).write_text("mine")
    (other / "old").write_text("theirs")
    assert brought(own, other, **{"deep/old": Change(1, GONE), "never": Change(1, GONE)}) == []
    assert files(own) == {"mine", "old", *COPIED}
    assert (own / FILES / "old").read_text() == "theirs"
    assert not (own / FILES / "deep").exists()
    assert {path for path, each in copies_of(own).items() if each is None} == {"deep/old"}
    # Once more only what is new; what no other node has any more goes.
    (other / "old").write_text("later")
    (other / "check/-rf").unlink()
    assert lacking(changes(other), own).keys() == {"old"}
    assert brought(own, other) == []
    assert (own / FILES / "old").read_text() == "later"
    assert files(own) == {"mine", "old", *COPIED} - {"check/-rf"}


def test_copies_that_no_rank_changed_go_when_the_server_takes_the_folder(own, other):
    (own / FILES / "gone").write_text("code")
    brought(own, other, gone=Change(1, GONE))
    (own / FILES / "check/-rf").write_text("changed")
    (own / FILES / "check/ü'\"").unlink()
    assert remove_copies(own) == (COPIED - {"check/-rf", "check/ü'\""} | {"gone"}, {"check/ü'\""})
    assert files(own) == {"check/-rf"}
    assert copies_of(own) == {}


def test_copies_of_an_attempt_that_never_began_are_still_known(own, other):
    brought(own, other)
    (other / "more").write_text("theirs")
    brought(own, other)
    with (own / "copies").open("a") as listed:
        listed.write('["half", [1')
    assert len(copies_of(own)) == len(HOSTILE) + 1
    assert remove_copies(own) == ({"more", *COPIED}, set())
    assert files(own) == set()


def test_what_cannot_be_copied_is_left_out(own, other, monkeypatch):
    os.mkfifo(other / "pipe")
    monkeypatch.chdir(other)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    (other / "away").symlink_to("/etc")
    (other / "up").symlink_to("../../x")
    (other / "link").symlink_to("check/-rf")
    left_out = brought(own, other, vanished=Change(1, "file"))
    assert left_out == ["away", "pipe", "socket", "up", "vanished"]
    assert files(own) == {"link", *COPIED}
    assert os.readlink(own / FILES / "link") == "check/-rf"


def test_no_change_leaves_the_working_folder(own, other, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data/gone").touch()
    (own / FILES / "check").symlink_to(tmp_path / "data")
    (other / "a/b").mkdir(parents=True)
    (other / "a/b/c").touch()
    (own / FILES / "a").write_text("a file")
    (other / "folder").touch()
    (own / FILES / "folder").mkdir()
    left_out = brought(own, other, **{"check/gone": Change(1, GONE)})
    assert left_out == sorted(["a/b/c", "folder", *COPIED])
    assert os.listdir(tmp_path / "data") == ["gone"]
    assert copies_of(own) == {}


def test_a_list_that_a_rank_wrote_leads_nowhere_else(own, tmp_path):
    (tmp_path / "data").write_text("mine")
    (own / FILES / "link").symlink_to(tmp_path)
    status = (tmp_path / "data").lstat()
    identity = [status.st_ino, status.st_size, status.st_mtime_ns]
    paths = ("../../data", str(tmp_path / "data"), "link/data", "a/../../../data")
    (own / "copies").write_text("".join(json.dumps([path, identity]) + "\n" for path in paths))
    remove_copies(own)
    assert (tmp_path / "data").exists()
    for content in ("[" * 60_000 + "]", '["a", "b"]', "[]", '{"a": [1]'):
        (own / "copies").write_text(content + "]")
        with pytest.raises(OSError, match="not a list of copies"):
            copies_of(own)
    (own / "copies").unlink()
    os.mkfifo(own / "copies")
    with pytest.raises(OSError, match="not a regular file"):
        copies_of(own)


def test_read_only_folders_get_copies_too(own, other, monkeypatch):
    def writable(self: Path) -> None:
        if not self.stat().st_mode & 0o200:
            raise PermissionError(13, "Permission denied", str(self))

    def rename(self: Path, target: Path) -> None:
        writable(target.parent)
        os.rename(self, target)

    def unlink(self: Path, missing_ok: bool = False) -> None:
        writable(self.parent)
        if self.exists() or not missing_ok:
            os.unlink(self)

    monkeypatch.setattr(Path, "rename", rename)  # also as root
    monkeypatch.setattr(Path, "unlink", unlink)
    (own / FILES / "check").mkdir(mode=0o555)
    (other / "check").chmod(0o555)
    brought(own, other)
    assert files(own) == COPIED
    assert (own / FILES / "check").stat().st_mode & 0o777 == 0o555
    remove_copies(own)
    assert files(own) == set()


def test_a_killed_agent_has_listed_every_copy(own, other, monkeypatch):
    def killed(self: Path, target: Path) -> None:
        rename(self, target)
        raise KeyboardInterrupt

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        brought(own, other)
    assert len(files(own)) == 1
    listed = (own / "copies").read_text().splitlines()
    assert [json.loads(line)[0] for line in listed] == [*files(own)]


@pytest.mark.parametrize("name", ["copies.new", "about.new", "about"])
def test_links_that_a_rank_left_beside_its_files_are_not_written_through(own, other, name):
    """In an image it would write files of the node that it does not see."""
    outside = own.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("the user's")
    (own / name).symlink_to(outside if name == "about" else outside / "file")
    with contextlib.suppress(OSError):
        brought(own, other)
    with contextlib.suppress(OSError):
        replace_file(own / CHANGES, b"{}")
    assert [path.name for path in outside.iterdir()] == ["file"]
    assert (outside / "file").read_text() == "the user's"


def test_what_comes_and_goes_leaves_the_times_of_folders(own, other):
    (own / FILES / "check").mkdir()
    (own / FILES / "check/mine").write_text("mine")
    os.utime(own / FILES / "check", ns=(5, 5))
    brought(own, other)
    assert (own / FILES / "check").stat().st_mtime_ns == 5
    remove_copies(own)
    assert files(own) == {"check/mine"}
    assert (own / FILES / "check").stat().st_mtime_ns == 5
