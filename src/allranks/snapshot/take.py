"""Take a snapshot of the user's code: a list of chunks, named by the hash of that list.

Digests of chunks are cached by the files' metadata, so that unchanged code is not read again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple

from allranks import folder_trees
from allranks.core.amounts import size_text
from allranks.core.job.code_size import MOST_BYTES, MOST_FILES, is_too_large, largest
from allranks.core.text import printable
from allranks.core.transfer_progress import OnProgress, Progress, unheard
from allranks.errors import CodeTooLarge, NotFound, UsageError
from allranks.masking import holds_secrets
from allranks.settings import read_json
from allranks.snapshot import chunks
from allranks.snapshot.files import File, status_now, walk
from allranks.snapshot.packages import Package, with_packages

LARGE = 300 << 20
# A recently changed file may change again without new metadata: file systems have coarse clocks.
_RECENT_SECONDS = 2.0
# Cached digests, of all folders.
_MAX_CACHED = 20_000


class Snapshot(NamedTuple):
    """``digest`` is the SHA-256 of ``manifest``; ``parts``: chunks by digest; ``size`` in bytes;
    ``left``: a sentence for each package that the job imports and the snapshot does not have."""

    digest: str
    manifest: bytes
    parts: Mapping[str, chunks.Chunk]
    files: tuple[str, ...]
    size: int
    left: tuple[str, ...] = ()

    def open(self, digest: str) -> BinaryIO:
        """A chunk's piece of the tar. Raises UsageError if its files have changed."""
        actual, file = chunks.pack(self.parts[digest])
        if actual != digest:
            file.close()
            changed = [entry.name for entry in self.parts[digest] if _has_changed(entry)]
            raise UsageError(
                "the code changed while it was being sent",
                where=", ".join(changed[:3]),
                hint="submit it again; exclude files that change, such as logs, by a line in "
                ".amlignore",
            )
        return file


def _has_changed(file: File) -> bool:
    try:
        now = status_now(file)
    except OSError:
        return True
    then = file.status
    return (now.st_size, now.st_mtime_ns) != (then.st_size, then.st_mtime_ns)


def take_snapshot(
    code: Path | None,
    note: Callable[[str], None] = lambda sentence: None,
    cache_file: Path | None = None,
    allow_large: bool = False,
    progress: OnProgress = unheard,
    includes: Sequence[Path] = (),
    is_commit: bool = False,
    packages: Sequence[Package] = (),
    wheels: Sequence[Path] = (),
) -> Snapshot:
    """Snapshot a folder, a single file, or ``packages`` and ``wheels`` alone. ``note`` receives
    messages for the user; ``cache_file``: a file to cache digests in; ``includes`` are files and
    folders that are put beside the others; ``is_commit``: it is a checkout, and git tracks all.

    Raises NotFound and UsageError; CodeTooLarge unless ``allow_large``, before reading any file.
    """
    notes: list[str] = []
    try:
        files = [] if code is None else _files_of(code, notes, allow_large, includes, is_commit)
        files, left = with_packages(code, files, packages, allow_large, notes, wheels)
        size = sum(file.status.st_size for file in files)
        if size > LARGE:
            notes.append(_large_note(code, size, files))
        if secret := [file.name for file in files if holds_secrets(file.name)]:
            notes.append(_secret_note(secret))
        for sentence in (*notes, *left):
            note(sentence)
        parts = _parts(files, _DigestCache(cache_file), size, progress)
    except OSError as error:
        raise UsageError(
            f"cannot read the code: {(error.strerror or str(error)).lower()}",
            where=str(error.filename or code),
            hint="exclude it by a line in .amlignore, or set the folder of your script: --code DIR",
        ) from error
    manifest = json.dumps({"chunks": [*parts], "files": len(files), "size": size}).encode()
    digest = hashlib.sha256(manifest).hexdigest()
    names = tuple(file.name for file in files)
    return Snapshot(digest, manifest, parts, names, size, tuple(left))


def _secret_note(names: Sequence[str]) -> str:
    more = f" and {len(names) - 1} more" if names[1:] else ""
    return (
        f"the code has {printable(names[0])}{more}, named as secrets are, which is sent and kept "
        "with the job: leave it out by a line in .amlignore, and pass values with --env NAME"
    )


def _files_of(
    code: Path, notes: list[str], allow_large: bool, includes: Sequence[Path], is_commit: bool
) -> list[File]:
    """The files of the code. Raises as ``take_snapshot``, and OSError."""
    if not code.exists():
        raise NotFound(
            "no such file or folder",
            where=str(code),
            hint="`code:` (--code) is the folder to send, relative to the job's file or, on the "
            "command line, to the current folder",
        )
    if code.resolve() == Path("/"):
        raise UsageError(
            "the code folder is the root of the file system",
            where=str(code),
            hint="change to the folder of your script, or set it: --code DIR",
        )
    files = walk(code, notes, is_commit=is_commit)
    if includes:
        files = _with_includes(files, includes, notes)
    size = sum(file.status.st_size for file in files)
    if is_too_large(len(files), size) and not allow_large:
        raise _too_large_error(code, size, files)
    return files


def _with_includes(files: list[File], includes: Sequence[Path], notes: list[str]) -> list[File]:
    """The files and those of ``includes``. Raises NotFound, and UsageError for two of a name."""
    by_name = {file.name: file for file in files}
    for path in includes:
        if not path.exists():
            hint = "paths in `additional_includes` start at the component's file"
            raise NotFound("no such file or folder", where=str(path), hint=hint)
        for file in walk(path, notes):
            name = file.name if path.is_file() else f"{path.name}/{file.name}"
            if name in by_name and by_name[name].path != file.path:
                hint = "rename one of the two"
                raise UsageError(
                    f"the code has a file {name!r} already", where=str(path), hint=hint
                )
            by_name[name] = file._replace(name=name)
    return sorted(by_name.values(), key=lambda file: file.name)


def _parts(
    files: list[File], cache: _DigestCache, size: int, progress: OnProgress
) -> dict[str, chunks.Chunk]:
    parts: dict[str, chunks.Chunk] = {}
    done = 0
    for chunk in chunks.split(files):
        progress(Progress("reading the code", done, size))
        done += sum(file.status.st_size for file in chunk)
        fingerprint = chunks.fingerprint(chunk)
        digest = cache.digests.get(fingerprint)
        if digest is None:
            chunk = [entry._replace(status=status_now(entry)) for entry in chunk]
            fingerprint = chunks.fingerprint(chunk)
            digest, file = chunks.pack(chunk)
            file.close()
        cache.add(fingerprint, digest, chunk)
        parts[digest] = chunk
    cache.save()
    return parts


class _DigestCache:
    """Digests of chunks by the fingerprint of their files. Losing it only costs time."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.digests: dict[str, str] = {}
        self._changed = False
        if file is not None:
            kept = read_json(file, dict).items()
            self.digests = {key: digest for key, digest in kept if isinstance(digest, str)}

    def add(self, fingerprint: str, digest: str, chunk: chunks.Chunk) -> None:
        newest = max(max(f.status.st_mtime, f.status.st_ctime) for f in chunk)
        if fingerprint not in self.digests and time.time() - newest > _RECENT_SECONDS:
            self.digests[fingerprint] = digest
            self._changed = True

    def save(self) -> None:
        if self._file is None or not self._changed:
            return
        newest = dict([*self.digests.items()][-_MAX_CACHED:])
        with contextlib.suppress(OSError):
            folder_trees.write_file(self._file, json.dumps(newest))


def _too_large_error(root: Path, size: int, files: list[File]) -> CodeTooLarge:
    limits = ["500 MB"] * (size > MOST_BYTES) + ["20,000 files"] * (len(files) > MOST_FILES)
    count = f"{len(files):,} file{'s' * (len(files) != 1)}"
    return CodeTooLarge(
        f"the code has {size_text(size)} ({count}), and the limit is "
        f"{' and '.join(limits)}. Largest:{_largest_text(files)}",
        where=str(root),
        hint="set the folder of your script: --code DIR; exclude data by lines in .amlignore; "
        "or send all of it: --allow-large-code (in Python allow_large_code=True)",
    )


def _large_note(root: Path | None, size: int, files: list[File]) -> str:
    where = "" if root is None else f" in {root}"
    return (
        f"the code{where} has {size >> 20} MB and is sent with every job; "
        f"exclude data by lines in .amlignore. Largest:{_largest_text(files)}"
    )


def _largest_text(files: list[File]) -> str:
    entries = largest((file.name, file.status.st_size) for file in files)
    return "".join(f"\n  {entry}" for entry in entries)
