"""The agent's code in the home, by its content: an upgrade replaces what is installed, and agents
import until the end of their job.

A copy holds the files of `agent_bundle`, with their byte code. Nodes that do not see the home
unpack the same files.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from allranks import folder_trees
from allranks.engines import agent_bundle

# In a copy: the sizes and times of the installed files that it was last compared with.
_STAMP = ".stamp"
# Before the name of a copy that is being made.
MAKING = ".making-"
# Installers replace files here, and never write into them, so that a second name is a copy.
_INSTALLED = frozenset({"site-packages", "dist-packages"})

_Sources = Sequence[tuple[str, Path]]

_log = logging.getLogger(__name__)
# The copies that this process uses: those of its own code, whatever is installed meanwhile.
_own: dict[Path, Path] = {}
_lock = threading.Lock()


def pin(folder: Path) -> Path | None:
    """As ``make``. Returns None if the disk is full or broken: what starts then imports what is
    installed."""
    try:
        return make(folder)
    except OSError as error:
        message = "agents run from the installed package, which an upgrade changes: %s"
        _log.warning(message, error.strerror or error)
        return None


def make(folder: Path) -> Path:
    """Return the copy of this process's code in ``folder``, for PYTHONPATH; made on first use.
    Thread-safe. Raises OSError."""
    with _lock:
        copy = _own.get(folder)
        if copy is None or not copy.is_dir():
            copy = _own[folder] = _make(folder)
        return copy


def path(folder: Path) -> Path:
    """Where ``make`` puts it."""
    return _own.get(folder) or folder / _digest([*agent_bundle.sources()])


def is_own(copy: Path) -> bool:
    """Whether this process's agents start from it."""
    return copy in _own.values()


def copies(folder: Path) -> list[Path]:
    """The copies in ``folder``, the one that was last replaced by another, or is in use, last."""
    try:
        paths = [path for path in folder.iterdir() if not path.name.startswith(".")]
    except FileNotFoundError:
        return []
    return sorted(paths, key=lambda path: path.stat().st_mtime_ns)


def _make(folder: Path) -> Path:
    sources = [*agent_bundle.sources()]
    stamp = _stamp(sources)
    before = copies(folder)
    copy = next((path for path in before if _read(path / _STAMP) == stamp), None)
    if copy is None or not _is_whole(copy, sources):
        copy = folder / _digest(sources)
        if copy in before:  # files of it were deleted, or the same was installed anew
            _fill(copy, sources)
            folder_trees.write_file(copy / _STAMP, stamp)
        else:
            _create(copy, sources, stamp)
    # Garbage collection goes by these times: agents may have started from the last one until now.
    now = time.time_ns()
    for used in (*before[-1:], copy):
        os.utime(used, ns=(now, now))
        now += 1
    return copy


def _create(copy: Path, sources: _Sources, stamp: str) -> None:
    beside = copy.with_name(f"{MAKING}{secrets.token_hex(8)}")
    beside.mkdir(parents=True, mode=0o700)
    try:
        _fill(beside, sources)
        folder_trees.write_file(beside / _STAMP, stamp)
        beside.rename(copy)
    except OSError:
        shutil.rmtree(beside, ignore_errors=True)
        if not copy.is_dir():  # another process made it
            raise


def _fill(copy: Path, sources: _Sources) -> None:
    """Put the files that are missing there."""
    folders = {os.path.dirname(name) for name, _ in sources}
    for name in folders:
        os.makedirs(copy / name / "__pycache__", exist_ok=True)
    for name, path in sources:
        _copy(path, copy / name)
        if path.suffix == ".py":
            code = Path(importlib.util.cache_from_source(str(path)))
            with contextlib.suppress(FileNotFoundError):  # it was never imported
                _copy(code, copy / os.path.dirname(name) / "__pycache__" / code.name)


def _copy(path: Path, to: Path) -> None:
    if _INSTALLED.intersection(path.parts):
        # No links: on another disk, or of files of another user.
        with contextlib.suppress(OSError):
            os.link(path, to)
    if not to.exists():
        beside = f"{to}.new"
        shutil.copyfile(path, beside)
        times = path.stat()  # byte code is valid for a file of that time
        os.utime(beside, ns=(times.st_atime_ns, times.st_mtime_ns))
        os.replace(beside, to)


def _is_whole(copy: Path, sources: _Sources) -> bool:
    files = {*folder_trees.files(copy)}
    return all(f"{copy}/{name}" in files for name, _ in sources)


def _stamp(sources: _Sources) -> str:
    """Changes when a file does, without reading them."""
    parts = list[str]()
    for name, path in sources:
        status = path.stat()
        parts.append(f"{name}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}")
    return _hash(part.encode() for part in parts)


def _digest(sources: _Sources) -> str:
    return _hash(f"{name}:".encode() + path.read_bytes() for name, path in sources)[:24]


def _hash(parts: Iterable[bytes]) -> str:
    """The SHA-256 of parts, each with its length."""
    whole = hashlib.sha256()
    for part in parts:
        whole.update(b"%d:" % len(part) + part)
    return whole.hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""
