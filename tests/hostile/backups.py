"""`server restore FILE`: a file that is like a backup of somebody's."""

from __future__ import annotations

import hashlib
import io
import json
import random
import tarfile

from allranks.errors import AllranksError
from allranks.server.storage import backup_archive
from tests.hostile import names
from tests.hostile.harness import Outcome, Place

TRIES = 60


def attempt(chance: random.Random, place: Place) -> Outcome:
    honest = {f"jobs/j/f{n}": chance.randbytes(chance.choice([0, 700])) for n in range(3)}
    hostile = names.hostile_entries(chance, "jobs", place, chance.randint(0, 5))
    data = names.packed(chance, honest, hostile)
    files = {path: [len(text), hashlib.sha256(text).hexdigest()] for path, text in honest.items()}
    manifest = {"format": 1, "files": files, "torn": [], "left_out": []}
    text = json.dumps(manifest).encode()
    if chance.random() < 0.2:
        text = chance.choice([b"[" * 60_000, b"3", b'{"format": 1}', b'{"format": 1, "files": []}'])
    info = tarfile.TarInfo("manifest.json")
    info.size = len(text)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w|") as tar:
        tar.addfile(info, io.BytesIO(text))
    # The end of the first tar is two blocks of zeros, and what fills its last record.
    data = data[: _end(data)] + out.getvalue()
    data, _ = names.spoiled(chance, data)
    if chance.random() < 0.2:
        data = names.odd_headers(chance) + data
    backup = place.root / "b.tar"
    backup.write_bytes(data)
    said = ""
    try:
        backup_archive.unpack(backup, place.goal, lambda _: None)
    except AllranksError as error:
        said = str(error).replace(str(place.root), "")
    except OSError as error:
        said = str(error.strerror)
    backup.unlink()
    for link in [path for path in place.goal.rglob("*") if path.is_symlink()]:
        link.unlink()  # jobs leave links to anywhere, and backups keep them
    return Outcome({} if said else honest, said)


def _end(data: bytes) -> int:
    """Where the entries of a tar end."""
    at = len(data)
    while at >= 512 and not any(data[at - 512 : at]):
        at -= 512
    return at
