"""Blobs appear whole or not at all."""

import hashlib
from pathlib import Path

import pytest

from allranks.errors import NotFound, UsageError
from allranks.store.files.blobs import Blobs

CONTENT = b"it's code"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def receive(blobs: Blobs, content: bytes, *, discard: bool = False) -> None:
    with blobs.receive(DIGEST) as take:
        take(content)
        if discard:
            blobs.discard(DIGEST)


def test_one_that_is_discarded_while_it_is_received_does_not_appear(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    with pytest.raises(NotFound, match="was discarded"):
        receive(blobs, CONTENT, discard=True)
    with pytest.raises(UsageError, match="does not match"):
        receive(blobs, b"other", discard=True)
    assert not [*tmp_path.glob("*/*")]
    receive(blobs, CONTENT)
    assert blobs.open(DIGEST).read_bytes() == CONTENT
    blobs.discard(DIGEST)
    blobs.discard(DIGEST)
    assert not blobs.has(DIGEST)
