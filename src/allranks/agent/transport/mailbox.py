"""A client that reaches the server through a shared folder, where no network leads to it.

A request is a file in ``in``, its response a file of the same name in ``out``: a line of JSON, then
the body. Both are written atomically.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.errors import Unreachable
from allranks.http_client import MAILBOX, Client, FilePart, Into, Reply, checked

QUESTIONS, ANSWERS = "in", "out"
# Bytes of a message, and of its head.
_LONGEST, _LONGEST_HEAD = 1 << 30, 1 << 16
# Seconds between checks for a response, growing from the first to the second.
_FIRST_WAIT, _LAST_WAIT = 0.02, 0.25


class Mailbox(Client):
    """A ``Client`` for URLs of `mailbox:` and a folder. Not thread-safe."""

    def __init__(self, url: str, token: str, *, timeout: float = 30.0) -> None:
        super().__init__("http://127.0.0.1:0", token, timeout=timeout)
        self.url = url
        self._folder = Path(url.removeprefix(MAILBOX))

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        timeout: float | None = None,
        into: Into | None = None,
    ) -> Reply:
        name = uuid.uuid4().hex
        head = {"method": method, "path": path, "token": self.token}
        try:
            content = body.read() if isinstance(body, FilePart) else body or b""
            write(self._folder / QUESTIONS / name, head, content)
            answer, content = self._answer(name, timeout or self._timeout)
        except OSError as error:
            raise Unreachable(f"cannot use the mailbox at {self._folder}: {error}") from None
        size = {"content-length": str(len(content))}
        reply = checked(Reply(int(answer["status"]), size, content))
        if into is None or into.size != len(content):
            return reply
        into.read(io.BytesIO(content))
        return reply._replace(body=b"")

    def download(self, path: str, *, timeout: float = 60.0) -> Iterator[bytes]:
        yield self.call("GET", path, timeout=timeout).body

    def _answer(self, name: str, timeout: float) -> tuple[dict[str, Any], bytes]:
        path, wait = self._folder / ANSWERS / name, _FIRST_WAIT
        until = time.monotonic() + timeout
        while True:
            # Listed before opening: NFS caches that a file does not exist.
            if name in os.listdir(path.parent):
                answer = read(path)
                path.unlink()
                return answer
            if time.monotonic() > until:
                (self._folder / QUESTIONS / name).unlink(missing_ok=True)
                raise Unreachable(f"the server does not answer in the mailbox at {self._folder}")
            time.sleep(wait)
            wait = min(_LAST_WAIT, wait * 1.5)


def write(path: Path, head: dict[str, Any], body: bytes) -> None:
    """Put a message into a mailbox, which the job can write to, too: no link is followed. Raises
    OSError."""
    box, root = path.parents[1], path.parents[3]
    with contextlib.ExitStack() as stack:
        part = f"{path.name}.new"
        beside, _ = folder_trees.open_parent(root, str((box / part).relative_to(root)))
        stack.callback(os.close, beside)
        into, name = folder_trees.open_parent(root, str(path.relative_to(root)))
        stack.callback(os.close, into)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(os.open(part, flags, 0o600, dir_fd=beside), "wb") as file:
            file.write(json.dumps(head).encode() + b"\n" + body)
        os.replace(part, name, src_dir_fd=beside, dst_dir_fd=into)


def read(path: Path, most: int = _LONGEST) -> tuple[dict[str, Any], bytes]:
    """A message of at most ``most`` bytes. Raises OSError, also for a link or a pipe, and
    ValueError for what is no message."""
    with folder_trees.open_file(path, below=path.parents[3]) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise ValueError("it is too long")
        try:
            head = json.loads(file.readline(_LONGEST_HEAD))
        except RecursionError:
            raise ValueError("it nests too deep") from None
        if not isinstance(head, dict):
            raise ValueError("it has no head")
        return head, file.read(most)
