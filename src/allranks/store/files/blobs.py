"""Blobs: files named by the hash of what is in them, in a folder; never changed once there."""

from __future__ import annotations

import hashlib
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from allranks.errors import NotFound, UsageError

_DIGEST = re.compile(r"[0-9a-f]{64}")


class Blobs:
    """A folder of blobs. Two writers of one blob are fine: the content is the same."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, digest: str) -> Path:
        """Where the blob lies, or would. Raises UsageError for what is no digest."""
        if not _DIGEST.fullmatch(digest):
            raise UsageError(f"{digest!r} is not a digest", hint="64 hexadecimal digits are")
        return self._folder / digest[:2] / digest

    def has(self, digest: str) -> bool:
        return self.path(digest).exists()

    def open(self, digest: str) -> Path:
        """The file of a blob that is there; raises NotFound."""
        path = self.path(digest)
        if not path.exists():
            raise NotFound(f"there is no blob {digest}", hint="submit the job again")
        return path

    def parts(self, digest: str) -> list[Path]:
        """The blobs that the list in this one names, in its order. Raises NotFound for the first
        that is not there."""
        named = json.loads(self.open(digest).read_bytes())["chunks"]
        return [self.open(each) for each in named]

    def is_whole(self, digest: str) -> bool:
        """Whether such a list is there, and all that it names."""
        try:
            self.parts(digest)
        except (NotFound, UsageError, ValueError, KeyError, TypeError):
            return False
        return True

    def names(self, digest: str) -> list[str]:
        """The digests in the list in this one; none when it is not there, or is no list."""
        try:
            return list(json.loads(self.path(digest).read_bytes())["chunks"])
        except (FileNotFoundError, UsageError, ValueError, KeyError, TypeError):
            return []

    @contextmanager
    def receive(self, digest: str) -> Iterator[Callable[[bytes], None]]:
        """A function that takes the blob piece by piece. It is there once the block ends well:
        written beside and renamed, so that a half one is never seen. Raises UsageError when what
        came is not what its name says."""
        path = self.path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        found = hashlib.sha256()
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:

            def take(piece: bytes) -> None:
                found.update(piece)
                file.write(piece)

            try:
                yield take
                if found.hexdigest() != digest:
                    raise UsageError(f"what was sent is not {digest}", hint="send it again")
                file.flush()
                os.replace(file.name, path)
            except BaseException:
                os.unlink(file.name)
                raise
