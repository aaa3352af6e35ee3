"""The agents' door as a folder: questions that are files are put to the agents' routes.

For clusters whose nodes have no way to the server over a network, but share its disk.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.agent.transport.mailbox import ANSWERS, QUESTIONS, read, write
from allranks.http_client import MAILBOX
from allranks.settings import Home
from allranks.store.records import Records

log = logging.getLogger("allranks.mailbox")

# Given as a compute's server address.
ADDRESS = "mailbox"
# How often the folders are looked into while there are any.
LOOK = 0.05
_IDLE = 1.0

App = Callable[..., Any]


class Mailboxes:
    """Those of all gangs that are out there. ``serve`` runs in the server's event loop."""

    def __init__(self, home: Home, records: Records, app: App) -> None:
        self._home, self._records, self._app = home, records, app
        # Held, or they would be collected while they run.
        self._answering: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        while True:
            folders = await asyncio.to_thread(self._folders)
            for folder in folders:
                for question in await asyncio.to_thread(_questions, folder):
                    task = asyncio.create_task(self._answer(folder, *question))
                    self._answering.add(task)
                    task.add_done_callback(self._answering.discard)
            await asyncio.sleep(LOOK if folders else _IDLE)

    def _folders(self) -> list[Path]:
        rows = [row for row in self._records.live() if row.plan.server_address == ADDRESS]
        return [box(self._home, f"{row.name}.{row.record.launch}") for row in rows]

    async def _answer(self, folder: Path, name: str, head: dict[str, Any], body: bytes) -> None:
        try:
            status, content = await _asked(self._app, head, body)
            await asyncio.to_thread(write, folder / ANSWERS / name, {"status": status}, content)
        except FileNotFoundError:
            pass  # the gang is gone, and its folder with it
        except Exception:
            log.exception("no answer for %s in %s", head.get("path"), folder)


def box(home: Home, key: str) -> Path:
    """A gang's mailbox: in its own folder, which goes when the gang does."""
    return home.nodes / key / "mailbox"


def url(home: Home, key: str) -> str:
    """What its agents are told; the folder is there when they are."""
    folder = box(home, key)
    for name in (QUESTIONS, ANSWERS):
        (folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
    return f"{MAILBOX}{folder}"


def _questions(folder: Path) -> list[tuple[str, dict[str, Any], bytes]]:
    """Take what there is; each is put once."""
    found = []
    try:
        names = os.listdir(folder / QUESTIONS)
    except OSError:
        return []  # not there yet, or not any more
    for name in sorted(names):
        path = folder / QUESTIONS / name
        try:
            found.append((name, *read(path)))
            path.unlink()
        except (OSError, ValueError):
            continue  # its agent has given up, or it is none of ours
    return found


async def _asked(app: App, head: dict[str, Any], body: bytes) -> tuple[int, bytes]:
    """Put a question to the routes as if it had come over HTTP."""
    path, _, query = str(head["path"]).partition("?")
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": str(head["method"]),
        "scheme": "http",
        "path": path,
        # The routes refuse what is no text: who asked is answered.
        "raw_path": path.encode(errors="surrogatepass"),
        "query_string": query.encode(errors="surrogatepass"),
        "root_path": "",
        "headers": [(b"authorization", f"Bearer {head['token']}".encode(errors="replace"))],
        "client": None,
        "server": None,
    }
    status, pieces = 500, []
    whole = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> dict[str, Any]:
        if (message := next(whole, None)) is not None:
            return message
        await asyncio.Event().wait()  # nobody hangs up
        return {"type": "http.disconnect"}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)
        pieces.append(message.get("body", b""))

    await app(scope, receive, send)
    return status, b"".join(pieces)
