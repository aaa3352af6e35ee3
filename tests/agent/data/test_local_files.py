"""Files of a node's own disks, as the cache sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from allranks.agent.data import local_files
from allranks.agent.data.file_entry import Changed


def test_links_are_followed_once(tmp_path: Path) -> None:
    (tmp_path / "d/sub").mkdir(parents=True)
    (tmp_path / "d/sub/a").write_text("a")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/b").write_text("b")
    (tmp_path / "d/up").symlink_to(tmp_path / "d")
    (tmp_path / "d/other").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "d/again").symlink_to(tmp_path / "d/sub/a")
    (tmp_path / "d/nowhere").symlink_to(tmp_path / "nothing")
    found, is_file = local_files.list_files(tmp_path / "d")
    assert sorted(item.name for item in found) == ["again", "other/b", "sub/a"]
    assert not is_file


def test_a_part_of_what_has_changed_is_not_given(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_bytes(b"0123456789")
    ((item,), is_file) = local_files.list_files(file)
    assert is_file
    assert bytes(local_files.read_range(item, 2, 5)) == b"234"
    file.write_bytes(b"another")
    with pytest.raises(Changed):
        local_files.read_range(item, 2, 5)
    file.unlink()
    with pytest.raises(Changed):
        local_files.read_range(item, 2, 5)
