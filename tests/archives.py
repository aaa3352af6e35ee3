"""Create archives, including hostile ones, and unpack them."""

import io
import tarfile
from pathlib import Path

from allranks.agent.archives import unpack_process
from allranks.agent.archives.unpack import unpack

UNLIMITED = 1 << 40
NAMES = [
    "a\nb",
    "ü'\"",
    "$(touch x)",
    "-rf",
    "n" * 200,
    "d" * 120 + "/" + "f" * 120 + "/" + "x" * 120,
    b"\xff\xfe".decode(errors="surrogateescape"),
    "deep/er/../name",
]
TARS = {"tar": "w", "tar.gz": "w:gz", "tgz": "w:gz", "tar.bz2": "w:bz2", "tar.xz": "w:xz"}


def entry(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = "", **more: int
) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.mtime = kind, target, 1_600_000_000
    for key, value in more.items():
        setattr(made, key, value)
    return made


def link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.SYMTYPE, target)


def hard(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, tarfile.LNKTYPE, target)


def tar(path: Path, *entries: tarfile.TarInfo | str, mode: str = "w", data: bytes = b"x") -> Path:
    """Create a tar; strings are names of files with ``data``."""
    with tarfile.open(path, mode, errors="surrogateescape") as file:  # type: ignore[call-overload]
        for each in entries:
            made = entry(each) if isinstance(each, str) else each
            if made.type == tarfile.REGTYPE:
                made.size = len(data)
            file.addfile(made, io.BytesIO(data))
    return path


def extract(archive: Path, folder: Path, limit: int = UNLIMITED) -> None:
    """Unpack as a worker does, in this process."""
    unpack_process.unpack(
        archive, folder, limit=limit, left=limit, sharing=1, report=lambda taken, written: None
    )


def extract_all(
    *archives: tuple[Path, Path], limit: int = UNLIMITED, workers: int = 2
) -> list[tuple[int, int]]:
    """Unpack as an agent does; return the progress calls."""
    calls: list[tuple[int, int]] = []
    unpack(archives, limit, lambda *counts: calls.append(counts), workers)
    return calls
