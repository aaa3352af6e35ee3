"""Serve agents through a shared folder: requests are files, passed to the agents' routes.

For clusters whose nodes cannot reach the server over a network but share its disk.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from allranks.agent.transport.mailbox import ANSWERS, QUESTIONS, read, write
from allranks.http_client import MAILBOX
from allranks.server.http.request_limits import LIMITS
from allranks.settings import Home
from allranks.store.jobs.records import Records

log = logging.getLogger("allranks.mailbox")

# The server address of computes whose agents use a mailbox.
ADDRESS = "mailbox"
# Requests of a mailbox that are taken at once, and bytes of the head of one.
_AT_ONCE, _HEAD = 100, 1 << 16
# Seconds between two scans of the folders, while there are any.
_SCAN = 0.05
_IDLE = 1.0

App = Callable[..., Any]


class Mailboxes:
    """The mailboxes of all live gangs. ``serve`` runs in the server's event loop."""

    def __init__(self, home: Home, records: Records, app: App) -> None:
        self._home, self._records, self._app = home, records, app
        # Referenced here so that running tasks are not garbage-collected.
        self._answering: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        while True:
            folders = self._folders()  # live jobs are in memory
            for folder in folders:
                for request in await asyncio.to_thread(_take_requests, folder):
                    task = asyncio.create_task(self._answer(folder, *request))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
            await asyncio.sleep(_SCAN if folders else _IDLE)

    def _folders(self) -> list[Path]:
        rows = [row for row in self._records.live() if row.plan.server_address == ADDRESS]
        return [box(self._home, f"{row.name}.{row.record.launch}") for row in rows]

    async def _answer(self, folder: Path, name: str, head: dict[str, Any], body: bytes) -> None:
        try:
            status, content = await _call(self._app, head, body)
            await asyncio.to_thread(write, folder / ANSWERS / name, {"status": status}, content)
        except OSError:
            pass  # the gang ended and its folder was removed, or its job changed it
        except Exception:
            log.exception("no answer for %s in %s", head.get("path"), folder)


def box(home: Home, key: str) -> Path:
    """A gang's mailbox, in its own folder, which is removed with the gang."""
    return home.nodes / key / "mailbox"


def url(home: Home, key: str) -> str:
    """The server URL of the gang's agents. Creates the mailbox."""
    folder = box(home, key)
    for name in (QUESTIONS, ANSWERS):
        (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"{MAILBOX}{folder}"


def _take_requests(folder: Path) -> list[tuple[str, dict[str, Any], bytes]]:
    """Remove and return requests in a mailbox; each is handled once. Its job can write there, too:
    what is no request is removed."""
    requests = []
    try:
        with os.scandir(folder / QUESTIONS) as entries:
            names = [entry.name for entry in islice(entries, _AT_ONCE)]
    except OSError:
        return []  # not created yet, or removed
    size = 0
    for name in sorted(names):
        if size > LIMITS.body:
            break  # the next scan takes the others
        path = folder / QUESTIONS / name
        with contextlib.suppress(OSError):  # the agent gave up
            try:
                head, body = read(path, LIMITS.body + _HEAD)
                if all(isinstance(head.get(key), str) for key in ("method", "path", "token")):
                    requests.append((name, head, body))
                    size += len(body)
            except (OSError, ValueError):
                pass
            path.unlink()
    return requests


async def _call(app: App, head: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Pass a request to the routes as if it had come over HTTP; status and body of the answer."""
    path, _, query = str(head["path"]).partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": str(head["method"]),
        "scheme": "http",
        "path": path,
        # The routes refuse a path that is not text, so that the agent gets an answer.
        "raw_path": path.encode(errors="surrogatepass"),
        "query_string": query.encode(errors="surrogatepass"),
        "root_path": "",
        "headers": [(b"authorization", f"Bearer {head['token']}".encode(errors="replace"))],
        "client": None,
        "server": None,
    }
    status, pieces = 500, []
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (message := next(messages, None)) is not None:
            return message
        await asyncio.Event().wait()  # a mailbox has no disconnects
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(pieces)
