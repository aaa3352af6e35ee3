"""Pieces of files that arrive from the server."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from allranks.agent.data.file_entry import FileEntry
from allranks.agent.data.from_server import _IntoFiles, _Piece
from allranks.agent.data.into_file import NotWritten


def piece(name: str, offset: int, size: int) -> _Piece:
    return _Piece(FileEntry(name, name, 10, "", 0.0), offset, size)


def into(folder: Path, *pieces: _Piece) -> _IntoFiles:
    return _IntoFiles(pieces, folder, memoryview(bytearray(3)))


def test_they_are_written_where_they_belong(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"..........")
    (tmp_path / "b").write_bytes(b"..........")
    both = into(tmp_path, piece("a", 2, 8), piece("b", 0, 0), piece("b", 1, 4))
    assert both.size == 12
    both.read(io.BytesIO(b"123456781234"))
    assert (tmp_path / "a").read_bytes() == b"..12345678"
    assert (tmp_path / "b").read_bytes() == b".1234....."


def test_a_cut_and_a_disk_that_cannot_be_written_are_different_errors(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(ConnectionError):
        into(tmp_path, piece("a", 0, 8)).read(io.BytesIO(b"1234"))
    with pytest.raises(NotWritten) as caught:
        into(tmp_path, piece("gone", 0, 8)).read(io.BytesIO(b"12345678"))
    assert isinstance(caught.value.error, FileNotFoundError)
