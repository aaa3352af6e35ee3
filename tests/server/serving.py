"""A home's server in this process: the real application on a real port, with an engine that starts
nothing."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import uvicorn

from allranks import settings
from allranks.engines.base import Kind
from allranks.engines.fake import FakeEngine
from allranks.http_limits.connection_limit import Listener
from allranks.http_limits.header_limits import Patient
from allranks.server.app import create_app
from allranks.server.auth.identity import Auth
from allranks.settings import Clocks, Home
from tests.support import until

JOB = {"spec": {"name": "j", "command": "true", "environment": "current"}, "in_place": "/"}


class Target(FakeEngine):
    """Gangs that are there and say nothing."""

    def __init__(self, home: Home, options: object) -> None:
        super().__init__()

    def check(self, options: object) -> None: ...

    def hosts(self, options: object) -> list[Any]:
        return []

    def end(self, key: str) -> None: ...


FAKE = Kind("fake", "starts nothing", (), Target, end_all=lambda home: None)  # type: ignore[arg-type]


class Served(NamedTuple):
    home: Home
    url: str
    auth: Auth
    people: httpx.Client

    def token(self) -> str:
        return self.home.token.read_text().strip()

    def submit(self, name: str, **more: Any) -> None:
        body = JOB | more | {"spec": JOB["spec"] | {"name": name}}  # type: ignore[operator]
        told = self.people.post("/api/v1/jobs", json=body)
        assert told.status_code == 201, told.text

    def as_(self, token: str) -> dict[str, str]:
        return {"authorization": f"Bearer {token}"}


@contextlib.contextmanager
def served(
    folder: Path,
    kind: Kind = FAKE,
    port: int = 0,
    kinds: Mapping[str, Kind] | None = None,
    **clocks: float,
) -> Iterator[Served]:
    """A server of the home in that folder, which may be new, with that engine, or these."""
    home = Home(folder)
    settings.make(home)
    listening = Listener(socket.AF_INET, ("127.0.0.1", port))
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    app = create_app(
        home, Clocks(**{"lease": 600.0, "hello": 600.0, **clocks}), url, kinds or {"fake": kind}
    )
    config = uvicorn.Config(
        app,
        http=Patient,
        loop="asyncio",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        until(lambda: server.started)
        token = home.token.read_text().strip()
        shown = {"authorization": f"Bearer {token}"}
        with httpx.Client(base_url=url, headers=shown, timeout=60, trust_env=False) as people:
            yield Served(home, url, Auth(home), people)
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()


def held_to(told: httpx.Response) -> None:
    """Whatever was asked, the answer is one: a refusal is a sentence with a hint, and no trace."""
    if told.status_code < 400:
        return
    body = json.loads(told.content)
    assert body.get("message"), told.text
    assert body.get("hint"), told.text
    assert told.status_code < 500 or body["error"] == "engine", told.text
    assert "Traceback" not in told.text
