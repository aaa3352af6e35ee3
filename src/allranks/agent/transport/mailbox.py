"""Speaking to the server through a folder that both share, where no network leads there.

The same calls as ``Client``. A question is a file in ``in``, its answer a file of the same name in
``out``: a line of JSON, then the body. Both appear by renaming, so nobody reads half of one.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.errors import Unreachable
from allranks.http_client import MAILBOX, Client, Reply, checked

QUESTIONS, ANSWERS = "in", "out"
# Between two looks for an answer: soon at first, for most come at once.
_SOONEST, _LATEST = 0.02, 0.25


class Mailbox(Client):
    """``url`` is `mailbox:` and the folder. Not for several threads at once."""

    def __init__(self, url: str, token: str, *, timeout: float = 30.0) -> None:
        super().__init__("http://127.0.0.1:0", token, timeout=timeout)
        self.url = url
        self._folder = Path(url.removeprefix(MAILBOX))

    def call(
        self, method: str, path: str, body: Any = None, *, timeout: float | None = None
    ) -> Reply:
        name = uuid.uuid4().hex
        head = {"method": method, "path": path, "token": self._token}
        try:
            write(self._folder / QUESTIONS / name, head, body or b"")
            told, content = self._answer(name, timeout or self._timeout)
        except OSError as error:
            raise Unreachable(f"the mailbox at {self._folder} cannot be used: {error}") from None
        return checked(Reply(int(told["status"]), {}, content))

    def download(self, path: str, *, timeout: float = 60.0) -> Iterator[bytes]:
        yield self.call("GET", path, timeout=timeout).body

    def _answer(self, name: str, timeout: float) -> tuple[dict[str, Any], bytes]:
        answer, wait = self._folder / ANSWERS / name, _SOONEST
        until = time.monotonic() + timeout
        while True:
            # Listed, not only opened: a disk on the network may remember that it was not there.
            if name in os.listdir(answer.parent):
                told = read(answer)
                answer.unlink()
                return told
            if time.monotonic() > until:
                (self._folder / QUESTIONS / name).unlink(missing_ok=True)
                raise Unreachable(f"nobody answers in the mailbox at {self._folder}")
            time.sleep(wait)
            wait = min(_LATEST, wait * 1.5)


def write(path: Path, head: dict[str, Any], body: bytes) -> None:
    beside = path.parent.parent / f"{path.name}.new"
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(json.dumps(head).encode() + b"\n" + body)
    beside.replace(path)


def read(path: Path) -> tuple[dict[str, Any], bytes]:
    with path.open("rb") as file:
        head: dict[str, Any] = json.loads(file.readline())
        return head, file.read()
