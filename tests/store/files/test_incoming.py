"""Blobs that arrive in pieces: see also `tests/sdk/upload`."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.store.files import same_data
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


@pytest.mark.parametrize("there", [b"", DATA[:2], DATA])
def test_an_early_part_goes_on_unless_there_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bytes
) -> None:
    monkeypatch.setattr(same_data, "SAMPLED", len(DATA))
    small = hashlib.sha256(b"small").hexdigest()
    incoming, early = Incoming(Blobs(tmp_path)), "0" * 64
    assert not incoming.write(early, 0, DATA[:4], len(DATA))
    if there:
        incoming.write(DIGEST, 0, there, len(DATA))
    incoming.adopt(early, early)
    assert incoming.size(early) == 4
    incoming.adopt(DIGEST, early)
    incoming.adopt(DIGEST, early)  # twice is once
    assert incoming.size(early) == 0
    at = incoming.size(DIGEST)
    assert at == {0: 4, 2: 2, 10: None}[len(there)]
    if at is not None:
        assert incoming.write(DIGEST, at, DATA[at:], len(DATA))
    assert [path.name for path in files(tmp_path)] == [DIGEST]
    Blobs(tmp_path).path(small).parent.mkdir()
    Blobs(tmp_path).path(small).write_bytes(b"small")
    assert Blobs(tmp_path).by_size(same_data.SAMPLED) == {len(DATA): {DIGEST}}
    alike, other = tmp_path / "alike", tmp_path / "other"
    alike.write_bytes(DATA)
    other.write_bytes(DATA[::-1])
    for _ in range(2):
        assert incoming.may_have(len(DATA), same_data.sample(str(alike), len(DATA)))
        assert not incoming.may_have(len(DATA), same_data.sample(str(other), len(DATA)))


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())
