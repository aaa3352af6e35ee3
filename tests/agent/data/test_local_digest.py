"""Whether two machines see the same data."""

import shutil
from pathlib import Path

from allranks.agent.data.local_digest import digest_of


def make(folder: Path) -> Path:
    (folder / "deep").mkdir(parents=True)
    (folder / "weights").write_bytes(bytes(100_000))
    (folder / "deep" / "f").write_text("x")
    (folder / "away").symlink_to("/nowhere")
    return folder


def test_a_copy_is_the_same_data(tmp_path: Path) -> None:
    data = make(tmp_path / "data")
    shutil.copytree(data, tmp_path / "copy", symlinks=True)
    (tmp_path / "copy" / "weights").touch()
    assert digest_of(data) == digest_of(tmp_path / "copy") != ""
    assert digest_of(data / "weights") == digest_of(tmp_path / "copy" / "weights") != ""


def test_what_differs_is_not(tmp_path: Path) -> None:
    data, found = make(tmp_path / "data"), set[str]()
    found.add(digest_of(data))
    (tmp_path / "empty").mkdir()
    found.add(digest_of(tmp_path / "empty"))
    (data / "deep" / "g").touch()
    found.add(digest_of(data))
    with (data / "weights").open("r+b") as file:  # same size and head, other values
        file.seek(50_000)
        file.write(b"1")
    found.add(digest_of(data))
    assert len(found) == 4
    assert digest_of(tmp_path / "missing") == ""


def test_of_a_large_folder_a_part_is_enough(tmp_path: Path) -> None:
    for number in range(1000):
        (tmp_path / f"{number:04}").touch()
    before = digest_of(tmp_path)
    (tmp_path / "more").touch()
    assert digest_of(tmp_path) != before
