"""Blobs: immutable files, named by the SHA-256 of their content."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from allranks import folder_trees
from allranks.errors import NotFound, UsageError

_DIGEST = re.compile(r"[0-9a-f]{64}")
PART = ".part"
# Bytes of a snapshot's manifest.
_MOST = 16 << 20


class Blobs:
    """A folder of blobs. Concurrent writers of a blob are harmless: the content is the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)

    def path(self, digest: str) -> Path:
        """The path of a blob, which need not exist. Raises UsageError for an invalid digest."""
        return Path(self.name(digest))

    def name(self, digest: str) -> str:
        """The same as a text, for who looks at thousands of them."""
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is not a SHA-256", hint="it has 64 hexadecimal digits")
        return f"{self._folder}/{digest[:2]}/{digest}"

    def part(self, digest: str, number: str = "") -> Path:
        """The path of a blob that is not complete; a ``number`` makes it another."""
        return Path(f"{self.name(digest)}{number and f'.{number}'}{PART}")

    def has(self, digest: str) -> bool:
        return os.path.exists(self.name(digest))

    def by_size(self, least: int) -> defaultdict[int, set[str]]:
        """The digests of the blobs from a size on."""
        digests = defaultdict[int, set[str]](set)
        for folder, _, names in folder_trees.walk(self._folder):
            for name in filter(_DIGEST.fullmatch, names):
                with contextlib.suppress(FileNotFoundError):
                    if (size := os.stat(f"{folder}/{name}").st_size) >= least:
                        digests[size].add(name)
        return digests

    def open(self, digest: str) -> Path:
        """The path of an existing blob. Raises NotFound."""
        path = self.path(digest)
        if not path.exists():
            raise NotFound(f"blob {digest} not found", hint="submit the job again")
        return path

    def parts(self, digest: str) -> list[Path]:
        """The paths of a snapshot's chunks in order, given its manifest's digest. Raises
        NotFound."""
        return [self.open(chunk) for chunk in _chunks(self.open(digest))]

    def is_complete(self, digest: str) -> bool:
        """Whether a snapshot's manifest and all its chunks exist."""
        try:
            self.parts(digest)
        except (NotFound, UsageError, ValueError, KeyError, TypeError, RecursionError):
            return False
        return True

    def chunk_digests(self, digest: str) -> list[str]:
        """The digests of a snapshot's chunks; none if its manifest is missing or invalid."""
        try:
            return _chunks(self.path(digest))
        except (FileNotFoundError, UsageError, ValueError, KeyError, TypeError, RecursionError):
            return []

    @contextmanager
    def receive(self, digest: str) -> Iterator[Callable[[bytes], None]]:
        """Yield a function that writes the blob piece by piece. The blob appears, complete, when
        the block ends. Raises UsageError if the content does not match the digest, and NotFound if
        the blob was discarded meanwhile."""
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        actual = hashlib.sha256()
        prefix = f"{digest}."
        with tempfile.NamedTemporaryFile(prefix=prefix, dir=path.parent, delete=False) as file:

            def write(piece: bytes) -> None:
                actual.update(piece)
                file.write(piece)

            try:
                yield write
                if actual.hexdigest() != digest:
                    raise UsageError(f"content does not match {digest}", hint="upload it again")
                file.flush()
                os.replace(file.name, path)
            except FileNotFoundError:
                raise NotFound(f"blob {digest} was discarded", hint="upload it again") from None
            except BaseException:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(file.name)
                raise

    def discard(self, digest: str) -> None:
        """Remove a blob, which need not exist, also one that is still being received: the end of
        an interrupted request may arrive late."""
        path = self.path(digest)
        for each in (path, *path.parent.glob(f"{digest}.*")):
            each.unlink(missing_ok=True)


def _chunks(manifest: Path) -> list[str]:
    with manifest.open("rb") as file:
        text = file.read(_MOST + 1)
    chunks: list[str] = json.loads(text)["chunks"]
    # Each has other files, so none is there twice.
    if len(text) > _MOST or len({*chunks}) < len(chunks):
        raise ValueError("not a snapshot's manifest")
    return [*chunks]
