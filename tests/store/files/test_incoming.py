"""Blobs that arrive in pieces: see also `tests/sdk/upload`."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.store.files.blobs import Blobs
from allranks.store.files.incoming import Incoming

DATA = b"0123456789"
DIGEST = hashlib.sha256(DATA).hexdigest()


def test_a_piece_that_comes_when_all_is_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path)
    incoming = Incoming(blobs)
    assert not incoming.write(DIGEST, 0, DATA[:4], len(DATA))
    assert incoming.write(DIGEST, 4, DATA[4:], len(DATA))
    has, first = blobs.has, iter([False])
    # Another thread completes it just after the first look.
    monkeypatch.setattr(blobs, "has", lambda digest: next(first, None) is None and has(digest))
    assert incoming.write(DIGEST, 2, DATA[2:], len(DATA))
    assert [path.name for path in files(tmp_path)] == [DIGEST]
    assert blobs.path(DIGEST).read_bytes() == DATA


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
