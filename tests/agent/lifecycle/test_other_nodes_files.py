"""What a node copies of the others' working folders, and that no copy grows old."""

import json
import os
import socket
from pathlib import Path

import pytest

from allranks.agent.lifecycle.other_nodes_files import copies_of, copy_missing, remove_unchanged
from allranks.core.data.working_set import FILES

HOSTILE = ["a\nb", "ü'\"", "-rf", b"\xff".decode(errors="surrogateescape")]


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
        if not path.is_dir()
    }


def test_copies_that_no_rank_changed_go_again(own, other):
    (own / FILES / "mine").write_text("mine")
    (other / "mine").write_text("theirs")
    copy_missing([other], own)
    copied = {f"check/{name}" for name in HOSTILE}
    assert files(own) == {"mine", *copied}
    assert copies_of(own).keys() == copied
    (own / FILES / "check/-rf").write_text("changed")
    remove_unchanged(own)
    assert files(own) == {"mine", "check/-rf"}
    assert (own / FILES / "mine").read_text() == "mine"
    assert copies_of(own) == {}


def test_copies_of_an_attempt_that_never_began_are_still_known(own, other):
    copy_missing([other], own)
    (other / "more").write_text("theirs")
    copy_missing([other], own)
    with (own / "copies").open("a") as listed:
        listed.write('["half", [1')
    assert len(copies_of(own)) == len(HOSTILE) + 1
    remove_unchanged(own)
    assert files(own) == set()


def test_what_cannot_be_copied_is_left_out(own, other, monkeypatch):
    os.mkfifo(other / "pipe")
    monkeypatch.chdir(other)
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
    (other / "away").symlink_to("/etc")
    (other / "link").symlink_to("check/-rf")
    (other / "outputs").mkdir()
    (other / "outputs/x").touch()
    copy_missing([other], own)
    assert files(own) == {"link", *(f"check/{name}" for name in HOSTILE)}


def test_no_copy_leaves_the_working_folder(own, other, tmp_path):
    (tmp_path / "data").mkdir()
    (own / FILES / "check").symlink_to(tmp_path / "data")
    (other / "a/b").mkdir(parents=True)
    (other / "a/b/c").touch()
    (own / FILES / "a").write_text("a file")
    copy_missing([other], own)
    assert list((tmp_path / "data").iterdir()) == []
    assert copies_of(own) == {}


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
    copy_missing([other], own)
    assert files(own) == {f"check/{name}" for name in HOSTILE}
    assert (own / FILES / "check").stat().st_mode & 0o777 == 0o555
    remove_unchanged(own)
    assert files(own) == set()


def test_a_killed_agent_has_listed_every_copy(own, other, monkeypatch):
    def killed(self: Path, target: Path) -> None:
        rename(self, target)
        raise KeyboardInterrupt

    rename = Path.rename
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(KeyboardInterrupt):
        copy_missing([other], own)
    assert len(files(own)) == 1
    listed = (own / "copies").read_text().splitlines()
    assert [json.loads(line)[0] for line in listed] == [*files(own)]
