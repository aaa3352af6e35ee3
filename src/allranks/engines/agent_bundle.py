"""The agent's own code as one file, for nodes that do not share the disk it is installed on."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import secrets
import zipfile
from collections.abc import Iterator
from pathlib import Path

# What an agent imports of ours.
_PARTS = (
    "*.py",
    "agent/**/*.py",
    "agent/inside/*.sh",
    "core/**/*.py",
    "snapshot/__init__.py",
    "snapshot/ignore.py",
    "spec/**/*.py",
)
# And of others, each plain Python: `packaging` compares versions of packages, pynvml measures GPUs.
_OTHERS = ("packaging", "pynvml")


def sources() -> Iterator[tuple[str, Path]]:
    """Yield (name, installed file) of each file, sorted; names are relative to a PYTHONPATH
    entry."""
    root = Path(__file__).parents[1]
    for path in sorted({path for part in _PARTS for path in root.glob(part)}):
        yield f"allranks/{path.relative_to(root).as_posix()}", path
    for name in _OTHERS:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            yield from _module(name, Path(spec.origin))


def _module(name: str, origin: Path) -> Iterator[tuple[str, Path]]:
    if origin.name != "__init__.py":
        yield f"{name}.py", origin
        return
    for path in sorted(origin.parent.rglob("*.py")):
        yield f"{name}/{path.relative_to(origin.parent).as_posix()}", path


def files() -> Iterator[tuple[str, bytes]]:
    """Yield (name, content) of each file of ``sources``."""
    for name, path in sources():
        yield name, path.read_bytes()


@functools.cache
def zipped() -> bytes:
    """Return a reproducible zip of ``files``."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


@functools.cache
def digest() -> str:
    """Return the SHA-256 of ``zipped``."""
    return hashlib.sha256(zipped()).hexdigest()


def keep(folder: Path) -> None:
    """Keep the zip for nodes that fetch it, also from a later version of this server."""
    path = folder / f"agent-{digest()}.zip"
    if not path.exists():
        beside = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
        beside.write_bytes(zipped())
        beside.replace(path)


def archive(path: Path) -> None:
    """Write a reproducible tar of ``files`` to ``path``, atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".new")
    import tarfile  # lazy: a server's start has no time for it

    with tarfile.open(temporary, "w") as tar:
        for name, content in files():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    temporary.replace(path)
