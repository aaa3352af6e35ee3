"""Code whose chunks were written by hand."""

from __future__ import annotations

import hashlib
import json
import tarfile
from pathlib import Path

import pytest

from allranks.errors import AllranksError
from allranks.store.files import code_listing
from allranks.store.files.blobs import Blobs
from allranks.store.files.contents import Contents
from tests.hostile.names import pax

FILE = tarfile.TarInfo("a.py").tobuf()


def snapshot(blobs: Blobs, *chunks: bytes) -> str:
    return put(blobs, json.dumps({"chunks": [put(blobs, chunk) for chunk in chunks]}).encode())


def put(blobs: Blobs, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    with blobs.receive(digest) as take:
        take(data)
    return digest


@pytest.fixture
def blobs(tmp_path: Path) -> Blobs:
    return Blobs(tmp_path)


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "chunk",
    [
        pax(b"1" * 900_000),  # CVE-2024-6232
        pax(b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n") + b"n\n" * 1_500_000,
        FILE + bytes(1024) + tarfile.TarInfo("after_the_end").tobuf(),
        tarfile.TarInfo("../x").tobuf(),
        tarfile.TarInfo("/x").tobuf(),
        FILE + b"x" * 700,
    ],
    ids=["digits", "holes", "end", "outside", "absolute", "garbage"],
)
def test_chunks_that_no_agent_would_unpack(blobs: Blobs, chunk: bytes):
    code = snapshot(blobs, FILE, chunk)
    assert blobs.is_complete(code)
    for read in (
        lambda: code_listing.code_files(blobs, code),
        lambda: code_listing.contents(blobs, code, {"a.py"}),
        lambda: Contents(blobs).of_code(code),
    ):
        with pytest.raises(AllranksError, match="the job's code"):
            read()


def test_times_that_are_no_times(blobs: Blobs):
    for record in (b"13 mtime=inf\n", b"13 mtime=nan\n", b"15 mtime=1e300\n"):
        code = snapshot(blobs, pax(record))
        assert [*code_listing.code_files(blobs, code)] == ["base/x"]


@pytest.mark.parametrize("chunks", ["x", ["0" * 64] * 2, [[]], None], ids=str)
def test_manifests_that_are_none(blobs: Blobs, chunks: object):
    put(blobs, b"")
    code = put(blobs, json.dumps({"chunks": chunks}).encode())
    assert not blobs.is_complete(code)
    assert not blobs.is_complete(put(blobs, b"[" * 100_000))


def test_a_manifest_that_repeats_a_chunk_or_is_large(blobs: Blobs):
    assert not blobs.is_complete(snapshot(blobs, FILE, FILE))
    text = json.dumps({"chunks": [put(blobs, FILE)]}).encode()
    assert not blobs.is_complete(put(blobs, text + b" " * (17 << 20)))
