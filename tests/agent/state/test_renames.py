"""Which files a rename has put in place, by the kernel's word."""

import os
from pathlib import Path

import pytest

from allranks.agent.state.renames import Renames

NAME = "a b'\udcff\n"  # any bytes


@pytest.fixture
def root(tmp_path):
    (tmp_path / "shared").mkdir()
    return tmp_path


@pytest.fixture
def renames(root):
    renames = Renames(root)
    renames.watch(["shared"])
    yield renames
    renames.close()


def put(path: Path, text: str = "x") -> None:
    beside = path.with_name(f"{path.name}.tmp")
    beside.write_text(text)
    beside.replace(path)


def test_a_file_that_a_rename_put_in_place(root, renames):
    put(root / "shared" / NAME)
    assert renames.look() == {f"shared/{NAME}"}
    put(root / "shared" / NAME)
    assert renames.look() == {f"shared/{NAME}"}


def test_files_written_in_place_are_none(root, renames):
    (root / "shared" / "f").write_text("x")
    os.link(root / "shared" / "f", root / "shared" / "g")
    assert renames.look() == set()


@pytest.mark.parametrize("change", ["append", "again", "away", "linked"])
def test_what_happens_to_one_afterwards(root, renames, change):
    path = root / "shared" / "f"
    put(path)
    if change == "append":
        with path.open("a") as file:
            file.write("more")
    elif change == "away":
        path.rename(root / "elsewhere")
    else:
        path.unlink()
        (root / "other").write_text("x")
        path.write_text("x") if change == "again" else os.link(root / "other", path)
    assert renames.look() == set()


def test_one_in_a_new_folder_counts_once_that_is_watched(root, renames):
    (root / "shared" / "new").mkdir()
    put(root / "shared" / "new" / "early")
    renames.watch(["shared", "shared/new"])
    put(root / "shared" / "new" / "f")
    assert renames.look() == {"shared/new/f"}


def test_after_a_folder_was_moved_its_old_path_says_nothing(root, renames):
    (root / "shared" / "step.tmp").mkdir()
    renames.watch(["shared/step.tmp"])
    put(root / "shared" / "step.tmp" / "f")
    (root / "shared" / "step.tmp").rename(root / "shared" / "step")
    assert renames.look() == set()
    put(root / "shared" / "step" / "f")
    assert renames.look() == set()  # watched under another name
    renames.watch(["shared", "shared/step"])
    put(root / "shared" / "step" / "f")
    assert renames.look() == {"shared/step/f"}


def test_without_the_kernels_word_none_is_known(root, renames):
    renames.close()  # as if it had none to give
    renames.watch(["shared"])
    put(root / "shared" / "f")
    assert renames.look() == set()
