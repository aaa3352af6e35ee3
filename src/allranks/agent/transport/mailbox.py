"""A client that reaches the server through a shared folder, where no network leads to it.

A request is a file in ``in``, its response a file of the same name in ``out``: a line of JSON, then
the body. Both are written atomically.
"""

from __future__ import annotations

import io
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.errors import Unreachable
from allranks.http_client import MAILBOX, Client, FilePart, Into, Reply, checked

QUESTIONS, ANSWERS = "in", "out"
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
    temporary = path.parent.parent / f"{path.name}.new"
    with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + body)
    temporary.replace(path)


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    with path.open("rb") as file:
        head: dict[str, Any] = json.loads(file.readline())
        return head, file.read()
