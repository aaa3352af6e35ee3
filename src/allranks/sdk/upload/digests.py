"""Hashes of the files that are uploaded. Those of unchanged files are kept between uploads."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from allranks import settings
from allranks.core.shared_work import Interrupted, Shared, large_first
from allranks.core.transfer_progress import OnProgress, Progress
from allranks.errors import UsageError
from allranks.sdk.upload.listing import Listing, Source, unreadable

# A recently changed file may change again without new metadata: file systems have coarse clocks.
_RECENT_SECONDS = 2.0
# The files and bytes of a unit of work, and the bytes read at a time.
_FILES, _PACK, _PIECE = 256, 16 << 20, 1 << 20
# How often a file that changes is read.
_TRIES = 3


class Digests:
    """The hashes of the files of one path, by their size, times and inode. Losing them only costs
    time."""

    def __init__(self, root: Path) -> None:
        name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
        self._root, self._file = root, settings.home().digests / f"{name}.json"
        kept = settings.read_json(self._file, dict)
        self._kept: dict[str, list[Any]] = {p: item for p, item in kept.items() if _is_kept(item)}
        self._is_changed = False

    def unknown(self, listing: Listing) -> list[Source]:
        """The files that have to be read."""
        return [source for source in listing.sources if self._known(source) is None]

    def of(self, listing: Listing, progress: OnProgress) -> dict[str, str]:
        """The SHA-256 of each file by its path; reads those that are not known. Raises UsageError
        for files that cannot be read or keep changing."""
        result = {source.path: self._known(source) for source in listing.sources}
        unknown = [source for source in listing.sources if result[source.path] is None]
        total, done = sum(source.status.st_size for source in unknown), 0
        lock, stop = threading.Lock(), threading.Event()

        def count(size: int) -> None:
            nonlocal done
            if stop.is_set():
                raise Interrupted
            with lock:
                done += size

        def reader() -> _Reader:
            return _Reader(self._root, self._keep, count)

        try:
            what = f"{listing.name}: reading"
            units = large_first(
                unknown, lambda source: source.status.st_size, _PIECE, _PACK, _FILES
            )
            Shared(units, stop).run(reader, lambda: progress(Progress(what, done, total)))
        finally:
            self._save(listing)
        now = {source.path: self._kept[source.path][-1] for source in unknown}
        return {path: digest or now[path] for path, digest in result.items()}

    def read(self, listing: Listing, source: Source, count: Callable[[int], None]) -> str:
        """The SHA-256 of one file, which is kept at once. Raises UsageError, and what ``count``
        raises, which receives the bytes."""
        _Reader(self._root, self._keep, count).do([source])
        self._save(listing)
        return str(self._kept[source.path][-1])

    def early_name(self, source: Source) -> str:
        """The name of a file's content before it is read: another one after each change."""
        place = os.path.realpath(os.fsencode(source.file)).hex()
        return hashlib.sha256(json.dumps([place, *_stamp(source.status)]).encode()).hexdigest()

    def _known(self, source: Source) -> str | None:
        kept = self._kept.get(source.path)
        return kept[-1] if kept and kept[:-1] == _stamp(source.status) else None

    def _keep(self, path: str, status: os.stat_result, digest: str) -> None:
        self._kept[path] = [*_stamp(status), digest]
        self._is_changed = True

    def _save(self, listing: Listing) -> None:
        """Keep the hashes of the files that there are, but for those changed just now."""
        if not self._is_changed:
            return
        before = (time.time() - _RECENT_SECONDS) * 1e9
        paths = {source.path for source in listing.sources}
        kept = {
            path: item
            for path, item in [*self._kept.items()]  # other threads add some
            if path in paths and max(item[1], item[2]) < before
        }
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = self._file.with_suffix(f".{os.getpid()}-{threading.get_ident()}.new")
            temporary.write_text(json.dumps(kept))
            temporary.replace(self._file)


def _is_kept(item: Any) -> bool:
    if not isinstance(item, list) or len(item) < 4:
        return False
    return isinstance(item[-1], str) and all(isinstance(number, int) for number in item[:-1])


class _Reader:
    """Reads files. See ``Digests``."""

    def __init__(
        self,
        root: Path,
        keep: Callable[[str, os.stat_result, str], None],
        count: Callable[[int], None],
    ) -> None:
        self._root, self._keep, self._count = root, keep, count

    def do(self, unit: Sequence[Source]) -> None:
        for source in unit:
            try:
                self._read(source)
            except OSError as error:
                raise unreadable(error, self._root) from None

    def close(self) -> None:
        pass

    def _read(self, source: Source) -> None:
        for _ in range(_TRIES):
            with open_data(source.file) as file:
                before, digest = os.fstat(file), hashlib.sha256()
                for piece in pieces(file, 0, before.st_size):
                    digest.update(piece)
                    self._count(len(piece))
                after = os.fstat(file)
            if _stamp(before) == _stamp(after):
                self._keep(source.path, after, digest.hexdigest())
                return
        raise changed(source.file)


@contextlib.contextmanager
def open_data(path: str) -> Iterator[int]:
    """A descriptor of a regular file. Raises OSError."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe does not block
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise FileNotFoundError(2, "it is no file any more", path)
        yield file
    finally:
        os.close(file)


def pieces(file: int, start: int, end: int) -> Iterator[bytes]:
    while start < end and (piece := os.pread(file, min(_PIECE, end - start), start)):
        yield piece
        start += len(piece)


def changed(path: str) -> UsageError:
    return UsageError(
        "the data changed while it was uploaded",
        where=os.fsencode(path).decode(errors="replace"),
        hint="wait until it is written, then run the same command again; what was sent is kept",
    )


def _stamp(status: os.stat_result) -> list[int]:
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
