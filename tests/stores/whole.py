"""Check the files of a node's cache against its manifests, byte for byte."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from allranks.agent.data import cache
from allranks.agent.data.download import PART


def check_cache(folder: Path) -> int:
    """Check every entry against the sizes, times and checksums in its manifest. Returns the number
    of files with a checksum; unpacked and copied ones have none."""
    checked = 0
    for manifest in folder.glob(f"*/{cache.MANIFEST}"):
        tree = cache.read(manifest.parent)
        assert tree is not None, manifest.read_text()
        assert not tree.damaged()
        for name, _, _, crc, _ in tree.files:
            assert not crc or crc in _checksums(tree.data / name), f"{manifest.parent}: {name}"
            checked += bool(crc)
    assert not [*folder.glob("*.gone")]
    return checked


def _checksums(path: Path) -> tuple[int, int]:
    """Of the content, and of the checksums of its parts."""
    data = path.read_bytes()
    parts = [zlib.crc32(data[at : at + PART]) for at in range(0, len(data), PART)]
    return zlib.crc32(data), zlib.crc32(json.dumps(parts).encode())
