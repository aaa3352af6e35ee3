"""An archive that a job's inputs name: tar, zip, and compressed ones."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import random
import tarfile
import zipfile

from tests.archives import extract
from tests.hostile import names
from tests.hostile.harness import Outcome, Place, said_by

TRIES = 90
_LIMIT = 64 << 20


def attempt(chance: random.Random, place: Place) -> Outcome:
    honest = {
        f"d{n}/f": chance.randbytes(chance.choice([0, 700])) for n in range(chance.randint(0, 3))
    }
    hostile = names.hostile_entries(chance, "d", place, chance.randint(0, 5))
    suffix = chance.choice(["tar", "tar.gz", "tar.bz2", "tar.xz", "zip"])
    if suffix == "zip":
        data = _zip(chance, honest, hostile)
    else:
        data = names.packed(chance, honest, hostile)
        if chance.random() < 0.3:
            data = names.odd_headers(chance) + data
        pack = {"tar.gz": gzip.compress, "tar.bz2": bz2.compress, "tar.xz": lzma.compress}
        data = pack.get(suffix, bytes)(data)
    data, _ = names.spoiled(chance, data)
    archive = place.root / f"a.{suffix}"
    archive.write_bytes(data)
    said = said_by(lambda: extract(archive, place.goal, _LIMIT))
    archive.unlink()
    return Outcome({} if said else honest, said)


def _zip(chance: random.Random, honest: dict[str, bytes], hostile: list[tarfile.TarInfo]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(
        out, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
    ) as zipped:
        for path, content in honest.items():
            zipped.writestr(path, content)
        for each in {each.name: each for each in hostile}.values():
            info = zipfile.ZipInfo(each.name[:60000] or "x")
            info.create_system = 3
            kinds = {
                tarfile.SYMTYPE: 0o120000,
                tarfile.DIRTYPE: 0o040000,
                tarfile.FIFOTYPE: 0o010000,
            }
            info.external_attr = (kinds.get(each.type, 0o100000) | each.mode) << 16
            zipped.writestr(info, each.linkname or chance.randbytes(each.size))
    return out.getvalue()
