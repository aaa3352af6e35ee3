"""Whether a node's cache holds what it says it does, byte for byte."""

from __future__ import annotations

import json
import zlib
from pathlib import Path

from allranks.agent.data import cache
from allranks.agent.data.download import PART


def hold_whole(folder: Path) -> int:
    """Every entry has the files of its manifest, with the sizes, times and checksums that were
    noted when they came; how many files those are. Of what was unpacked or copied none are."""
    looked_at = 0
    for manifest in folder.glob(f"*/{cache.MANIFEST}"):
        tree = cache.read(manifest.parent)
        assert tree is not None, manifest.read_text()
        assert not tree.damaged()
        for name, _, _, crc, _ in tree.files:
            assert not crc or crc in _checksums(tree.data / name), f"{manifest.parent}: {name}"
            looked_at += bool(crc)
    assert not [*folder.glob("*.gone")]
    return looked_at


def _checksums(path: Path) -> tuple[int, int]:
    """Of the content as a whole, and of those of its parts."""
    data = path.read_bytes()
    parts = [zlib.crc32(data[at : at + PART]) for at in range(0, len(data), PART)]
    return zlib.crc32(data), zlib.crc32(json.dumps(parts).encode())
