"""The file format of backups: a tar whose last member is a manifest with sizes and SHA-256.

A truncated file has no manifest, so an incomplete backup is always detected.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Mapping, Set
from pathlib import Path
from typing import Any, BinaryIO

from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import UsageError

_MANIFEST, _FORMAT, _PIECE = "manifest.json", 1, 1 << 20


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
    Returns the manifest, which includes ``facts``. Skips removed and special files, and
    adds unreadable ones to ``left_out``, which the manifest includes, too. Raises OSError."""
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
                try:
                    source = path.open("rb")
                except FileNotFoundError:
                    continue
                except PermissionError:
                    left_out.append(name)
                    continue
                with source:
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
    try:
        with tarfile.open(path, mode="r|") as tar:
            contents, manifest = _unpack(tar, target, report, path.stat().st_size)
    except (tarfile.TarError, EOFError) as error:
        raise _bad(path, f"not a backup, or truncated: {error}") from error
    if manifest is None:
        raise _bad(path, "the backup is truncated")
    if manifest.get("format") != _FORMAT:
        raise _bad(path, f"unknown backup format {manifest.get('format')}")
    wrong = [name for name, entry in manifest["files"].items() if contents.get(name) != entry]
    if wrong or len(contents) != len(manifest["files"]):
        raise _bad(path, f"the backup is damaged: {(wrong or ['its manifest'])[0]} does not match")
    return manifest


def _unpack(
    tar: tarfile.TarFile, target: Path | None, report: OnProgress, total: int
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    contents: dict[str, Any] = {}
    # Folders that are no links. To resolve each path anew takes minutes for deep ones.
    inside: set[Path] = set()
    for member in tar:
        source = tar.extractfile(member) if member.isreg() else None
        if member.name == _MANIFEST and source is not None:
            return contents, json.loads(source.read())
        place = None if target is None else _place(target, member.name, inside)
        if source is not None:
            report(Progress("reading the backup", member.offset_data, total))
            contents[member.name] = [member.size, _copy(source, place, member)]
        elif place is not None and member.isdir():
            place.mkdir(mode=stat.S_IMODE(member.mode) | 0o700, parents=True, exist_ok=True)
            if not place.is_symlink():
                inside.add(place)
        elif place is not None and member.issym():
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(member.linkname)
    return contents, None


def _place(target: Path, name: str, inside: Set[Path]) -> Path:
    """The target of a member. Raises UsageError outside of ``target``, also through links."""
    place = target / name
    parent = place.parent
    is_inside = parent in inside or parent.resolve().is_relative_to(target.resolve())
    if ".." in place.parts or not is_inside:
        raise _bad(target, f"the backup has a path outside of the home: {name}")
    return place


def _copy(source: Any, place: Path | None, member: tarfile.TarInfo) -> str:
    digest = hashlib.sha256()
    with contextlib.ExitStack() as stack:
        file: BinaryIO | None = None
        if place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            file = stack.enter_context(place.open("xb"))
            os.fchmod(file.fileno(), stat.S_IMODE(member.mode))
        while piece := source.read(_PIECE):
            digest.update(piece)
            if file is not None:
                file.write(piece)
    if place is not None:
        os.utime(place, (member.mtime, member.mtime))
    return digest.hexdigest()


def _bad(path: Path, message: str) -> UsageError:
    return UsageError(message, where=str(path), hint="use another backup")
