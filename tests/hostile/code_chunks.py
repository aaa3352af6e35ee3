"""The chunks of a job's code that a member sends: read by the server, unpacked by agents."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile

from allranks.agent.lifecycle import prepare
from allranks.store.files import code_listing
from allranks.store.files.blobs import Blobs
from allranks.store.files.contents import Contents
from tests.hostile import names
from tests.hostile.harness import Outcome, Place, said_by

TRIES = 60


def attempt(chance: random.Random, place: Place) -> Outcome:
    honest = {f"d{n}/f": chance.randbytes(chance.choice([0, 700])) for n in range(3)}
    hostile = names.hostile_entries(chance, "d0", place, chance.choice([0, 1, 5]))
    data, is_intact = names.spoiled(chance, _without_end(names.packed(chance, honest, hostile)))
    if chance.random() < 0.3:
        data = names.odd_headers(chance) + data
    blobs = Blobs(place.goal / "blobs")
    chunk = _put(blobs, data)
    code = _put(blobs, json.dumps({"chunks": [chunk]}).encode())
    if not blobs.is_complete(code):
        return Outcome(said="refused")
    said = [
        said_by(lambda: code_listing.code_files(blobs, code)),
        said_by(lambda: code_listing.contents(blobs, code, {*honest, "d0/l0"})),
        said_by(lambda: Contents(blobs).of_code(code)),
    ]
    work = place.goal / "work"
    work.mkdir()
    refused = said_by(lambda: prepare.unpack(blobs.path(chunk), work))
    for link in [path for path in work.rglob("*") if path.is_symlink()]:
        link.unlink()  # the submitter's own may lead anywhere
    expected = {f"work/{path}": content for path, content in honest.items()}
    return Outcome(expected if is_intact and not refused else {}, "\n".join([*said, refused]))


def _put(blobs: Blobs, data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    with blobs.receive(digest) as take:
        take(data)
    return digest


def _without_end(data: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        tar.getmembers()
        return data[: tar.offset - 512]
