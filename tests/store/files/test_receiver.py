"""Blobs that arrive in pieces: see also `tests/sdk/upload`."""

import gc
import hashlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.errors import Conflict, TooLarge, UsageError
from allranks.store.files import receiver as incoming_module
from allranks.store.files import same_data
from allranks.store.files.blobs import Blobs
from allranks.store.files.receiver import BlobReceiver

DATA = b"0123456789"
DIGEST = hashlib.sha256(DATA).hexdigest()


def test_a_piece_that_comes_when_all_is_there_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = Blobs(tmp_path)
    incoming = BlobReceiver(blobs)
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
    incoming, early = BlobReceiver(Blobs(tmp_path)), "0" * 64
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


def test_no_piece_says_how_long_the_server_hashes_zeros(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming_module, "_MOST_HASHED", 3 << 20)
    size = (10 << 20) + 1
    data = bytes(size - 1) + b"x"
    digest = hashlib.sha256(data).hexdigest()
    incoming = BlobReceiver(Blobs(tmp_path))
    for reached in (3 << 20, 6 << 20, 9 << 20):
        with pytest.raises(Conflict):
            incoming.write(digest, size - 1, b"x", size)
        assert incoming.size(digest) == reached
    # Of another server, which reads what is there, as much at a time.
    incoming = BlobReceiver(Blobs(tmp_path))
    for _ in range(3):
        with pytest.raises(Conflict):
            incoming.write(digest, size - 1, b"x", size)
    assert incoming.write(digest, size - 1, b"x", size)
    assert Blobs(tmp_path).path(digest).read_bytes() == data


def test_what_a_piece_claims_costs_nothing(tmp_path: Path) -> None:
    incoming, began = BlobReceiver(Blobs(tmp_path)), time.process_time()
    with pytest.raises(TooLarge):
        incoming.write(DIGEST, 2**52, b"x", 2**52 + 1)
    with pytest.raises(Conflict):
        incoming.write(DIGEST, 2**52, b"x", 10)
    with pytest.raises(UsageError):
        incoming.unpack(b"[" * 60_000 + b"\n")
    with pytest.raises(UsageError):
        incoming.unpack(b'[["%s", 1e400]]\n' % DIGEST.encode())
    assert time.process_time() - began < 1.0


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file())


def test_a_part_that_cannot_be_opened_says_only_that(tmp_path, capsys):
    (tmp_path / "00").write_text("in the way of its folder")
    incoming = BlobReceiver(Blobs(tmp_path))
    with pytest.raises(FileExistsError):
        incoming.write("0" * 64, 0, b"x", 2)
    (tmp_path / "00").unlink()
    (tmp_path / "00" / f"{'0' * 64}.part").mkdir(parents=True)
    with pytest.raises(IsADirectoryError):
        incoming.write("0" * 64, 0, b"x", 2)
    gc.collect()
    assert capsys.readouterr().err == ""
