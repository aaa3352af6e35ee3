"""Folders of users are walked and removed however deep they are."""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks import folder_trees
from tests.deep import DEEP, LEAF, LONG, make_deep


@pytest.fixture(autouse=True)
def leave_nothing(tmp_path: Path) -> Iterator[None]:
    """pytest removes old folders by recursion."""
    yield
    for each in tmp_path.iterdir():
        if each.is_dir() and not each.is_symlink():
            folder_trees.remove(each)


@pytest.mark.parametrize(("name", "levels"), [DEEP, LONG])
def test_a_folder_of_any_depth_is_removed(name, levels, tmp_path: Path):
    make_deep(tmp_path / "top", name, levels)
    (tmp_path / "top" / "beside").mkdir()
    (tmp_path / "kept").touch()
    folder_trees.remove(tmp_path / "top")
    assert os.listdir(tmp_path) == ["kept"]


def test_links_are_removed_not_followed(tmp_path: Path):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").touch()
    top = tmp_path / "top"
    top.mkdir()
    (top / "to a folder").symlink_to(tmp_path / "kept")
    (top / "nowhere").symlink_to("nowhere")
    os.mkfifo(os.fsencode(top) + b"/\xff\n")
    folder_trees.remove(top)
    assert (tmp_path / "kept" / "file").exists()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    with pytest.raises(OSError):
        folder_trees.remove(tmp_path / "link")
    assert (tmp_path / "kept" / "file").exists()


def test_folders_that_we_made_read_only_are_removed(tmp_path: Path):
    below = tmp_path / "top" / "a" / "b"
    below.mkdir(parents=True)
    (below / "file").touch()
    for mode, folder in ((0o555, below), (0o000, below.parent), (0o500, tmp_path / "top")):
        folder.chmod(mode)
    folder_trees.remove(tmp_path / "top")
    assert os.listdir(tmp_path) == []


def test_what_can_be_removed_is_and_the_first_error_raised(tmp_path: Path, monkeypatch):
    for name in ("a", "b", "c"):
        (tmp_path / "top" / name).mkdir(parents=True)
        (tmp_path / "top" / name / "file").touch()
    remove_file = os.unlink

    def unlink(name, *, dir_fd):
        if os.path.realpath(f"/proc/self/fd/{dir_fd}").endswith("/b"):
            raise OSError(30, "Read-only file system")
        remove_file(name, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(OSError, match="Read-only file system"):
        folder_trees.remove(tmp_path / "top")
    folder_trees.remove(tmp_path / "top", ignore_errors=True)
    assert os.listdir(tmp_path / "top") == ["b"]


def test_a_missing_folder(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        folder_trees.remove(tmp_path / "nowhere")
    folder_trees.remove(tmp_path / "nowhere", ignore_errors=True)
    assert list(folder_trees.walk(tmp_path / "nowhere")) == []
    assert list(folder_trees.files(tmp_path / "nowhere")) == []


@pytest.mark.parametrize("topdown", [True, False])
@pytest.mark.parametrize("followlinks", [True, False])
def test_a_walk_is_that_of_the_standard_library(topdown, followlinks, tmp_path: Path):
    for path in ("a/b/c", "a/d", "e", "other"):
        (tmp_path / path).mkdir(parents=True)
        (tmp_path / path / "file").touch()
    (tmp_path / "a" / "link").symlink_to(tmp_path / "other")
    ours = list(folder_trees.walk(tmp_path / "a", topdown, followlinks=followlinks))
    assert ours == list(os.walk(tmp_path / "a", topdown, followlinks=followlinks))


def test_a_walk_may_leave_folders_out(tmp_path: Path):
    for path in ("a/b", "c"):
        (tmp_path / path).mkdir(parents=True)
    seen = []
    for folder, folders, _ in folder_trees.walk(tmp_path):
        seen.append(os.path.relpath(folder, tmp_path))
        folders[:] = [name for name in folders if name != "a"]
    assert seen == [".", "c"]


@pytest.mark.medium
def test_a_deep_folder_is_walked_and_one_too_long_is_an_error_of_its_own(tmp_path: Path):
    make_deep(tmp_path / "deep", *DEEP)
    make_deep(tmp_path / "long", *LONG)
    errors: list[OSError] = []
    walk = list(folder_trees.walk(tmp_path, onerror=errors.append))
    files = [os.path.join(folder, name) for folder, _, names in walk for name in names]
    assert files == [str(tmp_path / "deep") + "/d" * 1200 + f"/{LEAF}"]
    assert [error.strerror for error in errors] == ["File name too long"]
    assert list(folder_trees.files(tmp_path)) == files


def test_folders_are_made_however_many_are_missing(tmp_path: Path):
    path = str(tmp_path) + "/x" * 1200
    folder_trees.make(path)
    folder_trees.make(path)
    assert os.path.isdir(path)
    (tmp_path / "file").touch()
    for taken in ("file", "file/below"):
        with pytest.raises((FileExistsError, NotADirectoryError)):
            folder_trees.make(tmp_path / taken)


def test_where_no_folder_can_be_made(tmp_path: Path):
    for path in ("/proc/none", "/proc/none/below"):
        with pytest.raises(FileNotFoundError):
            folder_trees.make(path)


@pytest.mark.slow
def test_removing_takes_no_longer_than_the_standard_library_does(tmp_path: Path):
    """The best of several, in turn; 2,000 files in 200 folders."""
    best: dict[str, float] = {}
    for _ in range(7):
        for remove in (shutil.rmtree, folder_trees.remove):
            for number in range(200):
                (tmp_path / "top" / f"{number % 10}" / f"{number}").mkdir(parents=True)
                for file in range(10):
                    (tmp_path / "top" / f"{number % 10}" / f"{number}" / f"{file}").touch()
            began = time.perf_counter()
            remove(tmp_path / "top")
            took = time.perf_counter() - began
            best[remove.__module__] = min(took, best.get(remove.__module__, took))
    assert best["allranks.folder_trees"] < 1.5 * best["shutil"]


def test_only_regular_files_below_a_folder_are_opened(tmp_path: Path):
    inside, secret = tmp_path / "job" / "folder", tmp_path / "secret"
    inside.mkdir(parents=True)
    secret.write_bytes(b"secret")
    (inside / "file").write_bytes(b"content")
    (inside / "link").symlink_to(secret)
    (inside / "up").symlink_to(tmp_path)
    os.mkfifo(inside / "pipe")
    job = tmp_path / "job"
    assert folder_trees.read_file(inside / "file", 4, job) == b"cont"
    names = (
        "link",
        "up/secret",
        "pipe",
        "../../secret",
        "",
        "missing",
        "a\0b",
        "\ud800",
        str(secret),
    )
    for name in names:
        for mode in ("rb", "ab"):
            if (name, mode) != ("missing", "ab"):
                with pytest.raises(OSError):
                    folder_trees.open_file(inside / name, mode, below=job)
    inside.chmod(0o300)  # it need not be readable
    with folder_trees.open_file(inside / "new", "ab", below="/") as file:
        assert os.get_blocking(file.fileno())
    assert secret.read_bytes() == b"secret"


def test_files_are_replaced_whole_or_not_at_all(tmp_path: Path):
    with folder_trees.replace_file(tmp_path / "a" / "f", tmp_path) as one:
        one.write(b"one")
        with folder_trees.replace_file(tmp_path / "a" / "g", tmp_path) as other:
            other.write(b"other")
    with pytest.raises(ValueError), folder_trees.replace_file(tmp_path / "a" / "f", tmp_path):
        raise ValueError
    found = {path.name: path.read_bytes() for path in (tmp_path / "a").iterdir()}
    assert found == {"f": b"one", "g": b"other"}


def test_a_file_of_ours_is_written_at_once_and_only_for_its_owner(tmp_path: Path, monkeypatch):
    file = tmp_path / "a'b"
    file.write_text("before")
    folder_trees.write_file(file, "after")
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o600)
    monkeypatch.setattr(Path, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        folder_trees.write_file(file, b"never")
    assert [each.name for each in tmp_path.iterdir()] == ["a'b"]
    assert file.read_text() == "after"


def test_a_folder_is_as_old_as_the_newest_file_in_it():
    files = {"train.py": 9, "ckpts/step_2/model": 1, "ckpts/step_1/deep/model": 2, "0/x": 0}
    expected = {"ckpts": 2, "ckpts/step_1": 2, "ckpts/step_1/deep": 2, "ckpts/step_2": 1, "0": 0}
    assert folder_trees.newest_times(files) == expected


def test_a_link_in_the_way_is_no_folder(tmp_path):
    """Callers pass over what ranks have put in the way, by this type and number."""
    (tmp_path / "link").symlink_to(tmp_path)
    with pytest.raises(NotADirectoryError) as caught:
        folder_trees.open_parent(tmp_path, "link/a", make=True)
    assert caught.value.errno == errno.ENOTDIR
