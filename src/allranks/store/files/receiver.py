"""Contents on their way, such as blobs: large ones piece by piece, small ones many at a time.

A piece is written where the last one ended, so an upload that was cut goes on from there; nothing
but the file itself says how far it is. The content appears when it matches its name. The part of a
blob may begin under an early name, while its digest is not computed yet.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from allranks.errors import Conflict, TooLarge, UsageError
from allranks.store.files import same_data
from allranks.store.files.blobs import Blobs

# Files that are open at a time, each with the hash of what it has; others are read again.
_OPEN = 64
# Pieces that are hashed at a time.
_HASHES = 4
# Blobs of one size that are looked at.
_ALIKE = 500
# Bytes that one call hashes beside those it brings: zeros that are not sent, or what was here when
# the server started. The next one goes on.
_MOST_HASHED = 1 << 30
# The largest blob.
_LARGEST = 1 << 44
_ZEROS = bytes(1 << 20)
# Its threads start when they are needed.
_HASHING = ThreadPoolExecutor(_HASHES)


class Place(Protocol):
    """Where contents are. Both names raise UsageError for an invalid digest."""

    def name(self, digest: str) -> str:
        """The path of a complete one, which need not exist."""

    def part(self, digest: str, number: str = "") -> Path:
        """The path of one that is not complete; a ``number`` makes it another."""


class _Part:
    """An open file, and the hash of its ``size`` bytes; ``lock`` is held by who writes it,
    ``users`` are those who do or wait for it."""

    def __init__(self, path: Path) -> None:
        self.lock = threading.Lock()
        self.file = -1
        self.file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self.hash = hashlib.sha256()
        self.size = self.users = 0
        self.is_gone = False
        self._is_read = False

    def __del__(self) -> None:
        if self.file >= 0:  # else it could not be opened
            os.close(self.file)

    def read(self) -> bool:
        """Read what is there already, once; False if there is more than one call reads."""
        end = self.size + _MOST_HASHED
        while not self._is_read and self.size < end:
            piece = os.pread(self.file, 1 << 20, self.size)
            self.hash.update(piece)
            self.size += len(piece)
            self._is_read = not piece
        return self._is_read

    def fill(self, until: int) -> None:
        """A hole up to ``until``."""
        # Of an empty file this would make ext4 write all of it to the disk when it is closed.
        if self.size == until:
            return
        while self.size < until:
            zeros = _ZEROS[: until - self.size]
            self.hash.update(zeros)
            self.size += len(zeros)
        os.ftruncate(self.file, self.size)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write and hash it at the same time. Raises OSError."""
        hashed = _HASHING.submit(self.hash.update, data)
        left = memoryview(data)
        try:
            while left:
                written = os.pwrite(self.file, left, self.size)
                self.size += written
                left = left[written:]
        finally:
            hashed.result()
            if left:  # more is hashed than written: read it again
                self.hash, self.size, self._is_read = hashlib.sha256(), 0, False


class Receiver:
    """The contents that arrive at a place. Thread-safe."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._parts: OrderedDict[str, _Part] = OrderedDict()
        self._lock = threading.Lock()

    def size(self, digest: str) -> int | None:
        """The bytes of a content that are here; None if all are."""
        if self._has(digest):
            return None
        try:
            return os.stat(self._place.part(digest)).st_size
        except FileNotFoundError:
            return 0

    def discard(self, digest: str) -> None:
        """Remove the part of a content."""
        with self._lock:
            self._forget(digest)
            self._place.part(digest).unlink(missing_ok=True)

    def close(self, all_but: int = 0) -> None:
        """Close the files that nobody writes, but for some that were used last. One that is
        written stays: who opened it again would write another's bytes under its name."""
        with self._lock:
            idle = [digest for digest, part in self._parts.items() if not part.users]
            for digest in idle[: max(0, len(self._parts) - all_but)]:
                del self._parts[digest]

    def write(
        self,
        digest: str,
        offset: int,
        data: bytes | bytearray | memoryview,
        size: int,
        *,
        holes: bool = True,
    ) -> bool:
        """Write a piece of a content of ``size`` bytes; whether it is here, complete. With
        ``holes`` zeros lie between the last piece and ``offset``.

        Raises Conflict if another upload of the same has come further, and while there is more to
        hash than one call does; UsageError for content that does not match, OSError.
        """
        if size > _LARGEST:
            raise TooLarge(f"a file is limited to {_LARGEST >> 40} TiB", hint="split it")
        while not self._has(digest):
            with self._opened(digest) as part:
                if part is not None and self._add(part, digest, offset, data, size, holes):
                    return self._has(digest)
        return True

    def _add(
        self,
        part: _Part,
        digest: str,
        offset: int,
        data: bytes | bytearray | memoryview,
        size: int,
        holes: bool,
    ) -> bool:
        """Write a piece of it; False if another upload has completed or removed it meanwhile."""
        with part.lock:
            if part.is_gone:
                return False
            is_read = part.read()
            fits = is_read and part.size <= offset <= offset + len(data) <= size
            if fits and holes:
                part.fill(min(offset, part.size + _MOST_HASHED))
            if not fits or part.size != offset:
                message = f"the content has {part.size} bytes, and this piece is from {offset}"
                raise Conflict(message, hint="ask how far it is, and go on from there")
            part.write(data)
            return part.size < size or self._finish(digest, part)

    def unpack(self, body: bytes) -> None:
        """Store many contents: a line of JSON, [[digest, size], …], then their bytes. Raises
        UsageError."""
        head, _, data = body.partition(b"\n")
        at = len(head) + 1
        try:
            entries: list[Any] = json.loads(head)
            sizes = [(str(digest), int(size)) for digest, size in entries]
        except (ArithmeticError, RecursionError, TypeError, ValueError):
            raise _malformed() from None
        if any(size < 0 for _, size in sizes) or sum(size for _, size in sizes) != len(data):
            raise _malformed()
        view, made = memoryview(body), set[str]()
        for digest, size in sizes:
            self._store(digest, view[at : at + size], made)
            at += size

    def _store(self, digest: str, data: memoryview, made: set[str]) -> None:
        path = self._place.name(digest)  # without pathlib, which takes longer than all else here
        if hashlib.sha256(data).hexdigest() != digest:
            raise _differs(digest)
        if os.path.exists(path):
            return
        beside = str(self._place.part(digest, secrets.token_hex(4)))
        for folder in {os.path.dirname(path), os.path.dirname(beside)} - made:
            os.makedirs(folder, 0o700, exist_ok=True)
            made.add(folder)
        try:
            file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
            try:
                while data:
                    data = data[os.write(file, data) :]
            finally:
                os.close(file)
            os.replace(beside, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            raise

    def _has(self, digest: str) -> bool:
        return os.path.exists(self._place.name(digest))

    @contextlib.contextmanager
    def _opened(self, digest: str) -> Iterator[_Part | None]:
        """None if the content is here: a piece that comes too late must not begin it again."""
        with self._lock:
            part = None if self._has(digest) else self._part(digest)
            if part is not None:
                part.users += 1
        self.close(all_but=_OPEN)
        try:
            yield part
        finally:
            if part is not None:
                with self._lock:
                    part.users -= 1

    def _part(self, digest: str) -> _Part:
        part, path = self._parts.get(digest), self._place.part(digest)
        if part is None or part.is_gone or not path.exists():
            self._forget(digest)
            path.parent.mkdir(parents=True, exist_ok=True)
            part = self._parts[digest] = _Part(path)
        self._parts.move_to_end(digest)
        return part

    def _forget(self, digest: str) -> None:
        """Who still writes it gives it no name: the file of that path may be another's by now."""
        if (part := self._parts.pop(digest, None)) is not None:
            part.is_gone = True

    def _finish(self, digest: str, part: _Part) -> bool:
        """Give the complete file its name; False if it was removed. Raises UsageError if it is
        something else."""
        path = self._place.part(digest)
        with self._lock:
            if self._parts.get(digest) is not part:
                return False
            self._forget(digest)
            if part.hash.hexdigest() != digest:
                path.unlink(missing_ok=True)
                raise _differs(digest)
            os.fchmod(part.file, 0o444)
            target = self._place.name(digest)
            os.makedirs(os.path.dirname(target), 0o700, exist_ok=True)
            path.replace(target)
        return True


class BlobReceiver(Receiver):
    """The blobs that arrive in a folder of blobs."""

    def __init__(self, blobs: Blobs) -> None:
        super().__init__(blobs)
        self._blobs = blobs
        # The large blobs that were here at the first question, and have come since.
        self._by_size: defaultdict[int, set[str]] | None = None
        self._walk = threading.Lock()

    def may_have(self, size: int, sample: str) -> bool:
        """Whether a blob of this size has this sample (see ``same_data``), or too many may have."""
        with self._walk:
            if self._by_size is None:
                self._by_size = self._blobs.by_size(same_data.SAMPLED)
        alike = [*self._by_size.get(size, ())]
        if len(alike) > _ALIKE:
            return True
        for digest in alike:
            with contextlib.suppress(OSError):  # it was removed
                if same_data.sample(self._blobs.name(digest), size) == sample:
                    return True
        return False

    def adopt(self, digest: str, early: str) -> None:
        """Go on with what came under an early name as a part of this blob, unless some of that is
        here. Raises OSError."""
        source, target = self._blobs.part(early), self._blobs.part(digest)
        with self._lock:
            if digest == early or not source.exists():
                return
            part = self._parts.pop(early, None)
            if not target.exists() and not self._blobs.has(digest):
                target.parent.mkdir(parents=True, exist_ok=True)
                source.replace(target)
                self._forget(digest)
                if part is not None:
                    self._parts[digest] = part
                return
            if part is not None:
                part.is_gone = True
            source.unlink()

    def _finish(self, digest: str, part: _Part) -> bool:
        is_named = super()._finish(digest, part)
        if is_named and self._by_size is not None and part.size >= same_data.SAMPLED:
            self._by_size[part.size].add(digest)
        return is_named


def _malformed() -> UsageError:
    return UsageError("malformed pack of blobs", hint="a line of [[digest, size], …], their bytes")


def _differs(digest: str) -> UsageError:
    return UsageError(f"content does not match {digest}", hint="upload it again")
