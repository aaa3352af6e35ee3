"""The file format of backups: a tar whose last member is a manifest with sizes and SHA-256.

A truncated file has no manifest, so an incomplete backup is always detected.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import json
import os
import tarfile
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from allranks import disk_space, folder_trees
from allranks.agent.archives.safe_extract import Extraction
from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import AllranksError, UsageError
from allranks.tars import Entry, stream_entries

_MANIFEST, _FORMAT = "manifest.json", 1
# Of opening a file that may be anything.
_UNREADABLE = (errno.EACCES, errno.EPERM, errno.ELOOP, errno.EINVAL, errno.ENXIO)


class _Piece:
    """Reads exactly ``size`` bytes of a file that may change, and hashes them."""

    def __init__(self, file: BinaryIO, size: int, wrote: Callable[[int], None]) -> None:
        self._file, self._left, self._wrote = file, size, wrote
        self.hash, self.torn = hashlib.sha256(), False

    def read(self, most: int) -> bytes:
        most = min(most, self._left)
        data = self._file.read(most)
        if len(data) < most:  # the file shrank: the tar header already has its size
            self.torn = True
            data += bytes(most - len(data))
        self._left -= len(data)
        self._wrote(len(data))
        self.hash.update(data)
        return data


def pack(
    file: BinaryIO,
    what: Iterable[tuple[str, Path]],
    facts: Mapping[str, Any],
    report: OnProgress,
    total: int,
    left_out: list[str],
) -> dict[str, Any]:
    """Write files, links and folders under the given names; ``total`` bytes for the progress.
    Returns the manifest, which includes ``facts``. Skips removed and special files, and adds
    unreadable ones, and huge ones without data, to ``left_out``, which the manifest includes, too.
    Raises OSError."""
    files: dict[str, Any] = {}
    torn = []
    done = 0

    def wrote(count: int) -> None:
        nonlocal done
        done += count
        report(Progress("writing the backup", done, max(total, done)))

    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, path in what:
            try:
                info = tar.gettarinfo(path, name)
            except FileNotFoundError:
                continue
            info.type = tarfile.REGTYPE if info.islnk() else info.type
            if info.isreg():
                try:  # a job may have put a link or a pipe in its place
                    source = folder_trees.open_file(path)
                except FileNotFoundError:
                    continue
                except OSError as error:
                    if error.errno not in _UNREADABLE:
                        raise
                    left_out.append(name)
                    continue
                with source:
                    if disk_space.is_mostly_hole(source.fileno()):
                        left_out.append(name)
                        continue
                    info.size = os.fstat(source.fileno()).st_size
                    piece = _Piece(source, info.size, wrote)
                    tar.addfile(info, piece)  # type: ignore[arg-type]
                files[name] = [info.size, piece.hash.hexdigest()]
                torn += [name] * piece.torn
            elif info.isdir() or info.issym():
                tar.addfile(info)
        manifest = {**facts, "format": _FORMAT, "torn": torn, "left_out": left_out}
        manifest["files"] = files
        text = json.dumps(manifest).encode()
        info = tarfile.TarInfo(_MANIFEST)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    return manifest


def unpack(path: Path, target: Path | None, report: OnProgress) -> dict[str, Any]:
    """Verify a backup, and extract it into the folder ``target`` unless None. Returns the manifest.
    Raises UsageError if it is not an intact backup, and OSError."""
    with contextlib.ExitStack() as stack:
        entries = stream_entries(path.name, stack.enter_context(path.open("rb")))
        extraction = None
        if target is not None:
            stack.callback(os.umask, os.umask(0))
            extraction = Extraction(path, target, as_it_was=True)
            stack.callback(extraction.close)
        try:
            contents, manifest = _unpack(entries, extraction, report, path.stat().st_size)
        except AllranksError as error:
            raise _bad(path, f"not a backup, or truncated: {error.message}") from error
    if manifest is None:
        raise _bad(path, "the backup is truncated")
    if not isinstance(manifest, dict) or manifest.get("format") != _FORMAT:
        raise _bad(path, "unknown backup format")
    files, torn = manifest.get("files"), manifest.get("torn")
    if not isinstance(files, dict) or not isinstance(torn, list):
        raise _bad(path, "the backup is damaged: its manifest is incomplete")
    wrong = [name for name, entry in files.items() if contents.get(name) != entry]
    wrong += [str(name) for name in torn if str(name) not in contents]
    if wrong or len(contents) != len(files):
        raise _bad(path, f"the backup is damaged: {(wrong or ['its manifest'])[0]} does not match")
    return manifest


def _unpack(
    entries: Iterable[Entry], extraction: Extraction | None, report: OnProgress, total: int
) -> tuple[dict[str, Any], Any]:
    """What files hold, and the manifest, None without one."""
    contents: dict[str, Any] = {}
    done = 0
    for entry in entries:
        if entry.name == _MANIFEST:
            try:
                return contents, json.loads(b"".join(entry.content()))
            except (ValueError, RecursionError):
                return contents, {}
        report(Progress("reading the backup", done, total))
        done += entry.size
        digest = hashlib.sha256()
        hashed = entry._replace(read=partial(_read, entry, digest))
        if extraction is not None:
            extraction.put(hashed)
        else:
            deque(hashed.content(), maxlen=0)
        if entry.kind == "file":
            contents[entry.name] = [entry.size, digest.hexdigest()]
    return contents, None


def _read(entry: Entry, digest: Any, size: int) -> bytes:
    data = entry.read(size)
    digest.update(data)
    return data


def _bad(path: Path, message: str) -> UsageError:
    return UsageError(message, where=str(path), hint="use another backup")
