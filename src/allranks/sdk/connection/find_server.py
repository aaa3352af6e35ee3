"""Find or start the server. A home never has two."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from allranks import file_locks, settings
from allranks.errors import ServerError, Unreachable, from_body
from allranks.http_client import Client
from allranks.sdk.connection import contexts
from allranks.settings import Home, read_json
from allranks.version import __version__

if TYPE_CHECKING:
    from allranks.api.routes import Answer, Route

# Servers started by this process. They outlive it on purpose; keeping them avoids Python's warning
# about running children.
_STARTED: list[subprocess.Popen[bytes]] = []

# When a home's server last answered this process, by its process id and URL, and for how many
# seconds it is not asked again.
_ANSWERED: dict[tuple[int | None, str], float] = {}
_RECENT = 1.0
# How long a server may take to answer after its start, or to stop.
_START = 30.0


class Running(NamedTuple):
    """The content of a home's server.json, and whether that server still runs. ``started``: when,
    by its clock; None for one that cannot become another version in place."""

    pid: int | None
    url: str | None
    version: str | None
    alive: bool
    started: float | None = None

    @property
    def hands_over(self) -> bool:
        return self.started is not None


def connect(*, start: bool = True, any_version: bool = False) -> Client:
    """A client of the server that ``contexts.chosen`` names, or else of the home's own, which is
    started if ``start`` is set.

    Raises ServerError if it has another version, cannot be started or does not answer.
    """
    server = contexts.chosen()
    if server is not None:
        token = server.token or _token_if_it_is_ours(server.url)
        return Client(server.url, token, fingerprint=server.fingerprint)
    home = settings.home()
    running = look(home)
    # A command that goes on while the server is upgraded: what it calls stays the same.
    any_version = any_version or bool(_ANSWERED)
    if running.alive and running.url is not None and _answers_still(running.pid, running.url):
        return _client(home, running, any_version)
    if not start:
        hint = "start it with `allranks server start`; commands that need it also start it"
        raise Unreachable("no server is running for this home", where=str(home.root), hint=hint)
    return _client(home, start_server(home), any_version)


def of_another_home() -> str:
    """The server that ``contexts.chosen`` names, for messages; '' if it is this home's own."""
    server = contexts.chosen()
    if server is None or look(settings.home()).url == server.url:
        return ""
    return f"{server.url} ({server.source})"


def ask(route: Route[Answer], *names: str, body: Any = None, **query: Any) -> Answer:
    """The server's JSON reply to one request: see `Client.ask`."""
    with connect() as client:
        return client.ask(route, *names, body=body, **query)


def look(home: Home) -> Running:
    """The server of a home, without contacting it."""
    data = read_json(home.server, dict)
    pid, url, version = data.get("pid"), data.get("url"), data.get("version")
    started = data.get("started")
    return Running(
        pid if isinstance(pid, int) else None,
        url if isinstance(url, str) else None,
        version if isinstance(version, str) else None,
        file_locks.is_held(home.lock),
        started if isinstance(started, float) else None,
    )


def was_killed(pid: int | None) -> bool:
    """Whether a process of this machine was killed and still has its files, and their locks: on a
    busy machine for up to a second, with a disk that does not answer for longer."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    fields = dict(line.split(":", 1) for line in lines)
    pending = int(fields["SigPnd"], 16) | int(fields["ShdPnd"], 16)
    return fields["State"].split()[0] in "ZX" or bool(pending >> (signal.SIGKILL - 1) & 1)


def start_server(home: Home, port: int | None = None) -> Running:
    """Start the home's server, or wait for one that is starting, until it listens."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        # Retry: another server that was stopping or starting may have released the lock.
        if not file_locks.is_held(home.lock):
            _spawn(home, port)
        running = look(home)
        if running.alive and running.url is not None and _answers(running.url):
            return running
        time.sleep(0.02)
    raise ServerError(
        "the server of this home runs but does not answer",
        where=str(home.root),
        hint=f"stop it with `allranks server stop`; its log is {home.log}",
    )


def answers(running: Running) -> bool:
    """Whether this server listens and answers."""
    return running.url is not None and _answers(running.url)


def wait_gone(home: Home, seconds: float) -> bool:
    """Whether the home's server has exited within ``seconds``."""
    until = time.monotonic() + seconds
    while file_locks.is_held(home.lock):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def end(home: Home, number: signal.Signals) -> None:
    """Signal a server that does not answer, identified by its lock."""
    running = look(home)
    if running.pid is not None and file_locks.has_open(running.pid, home.lock):
        os.kill(running.pid, number)


def _spawn(home: Home, port: int | None) -> None:
    read, write = os.pipe()
    words = ["--ready-fd", str(write), *([] if port is None else ["--port", str(port)])]
    try:
        start_process(home, words, write)
    finally:
        os.close(write)
    with open(read) as answer:
        text = answer.read()
    body = json.loads(text) if text else {}
    if "error" in body and body["error"] != "conflict":
        raise from_body(body)
    if not text:
        hint = f"its log is {home.log}"
        raise ServerError("the server could not be started", where=str(home.root), hint=hint)


def start_process(home: Home, words: Sequence[str], inherited: int) -> None:
    """Start a server of this version that keeps the descriptor ``inherited``. Raises OSError."""
    with _open_log(home) as log:
        started = subprocess.Popen(
            [sys.executable, "-P", "-m", "allranks.server", *words],
            cwd="/",
            env={**os.environ, "ALLRANKS_HOME": str(home.root)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            pass_fds=[inherited],
            start_new_session=True,
        )
    _STARTED.append(started)


def _open_log(home: Home) -> BinaryIO:
    settings.make(home)
    try:
        home.log.touch(mode=0o600)
        return open(home.log, "ab")
    except OSError as error:
        raise settings.unusable(home, error) from error


def _client(home: Home, running: Running, any_version: bool) -> Client:
    if running.version != __version__ and not any_version:
        raise ServerError(
            f"the server of this home is allranks {running.version}, this command is {__version__}",
            where=str(home.root),
            hint="let it become this version, jobs go on: `allranks server restart`",
        )
    assert running.url is not None
    return Client(running.url, os.environ.get("ALLRANKS_TOKEN", "").strip() or _token(home))


def _token(home: Home) -> str:
    try:
        return home.token.read_text().strip()
    except OSError as error:
        raise ServerError(
            f"the token cannot be read: {(error.strerror or str(error)).lower()}",
            where=str(home.token),
            hint="only the owner of the home may use its server",
        ) from error


def _token_if_it_is_ours(url: str) -> str:
    """The home's token, only for the home's own server while it runs: on the port of one that was
    killed, any program may listen."""
    home = settings.home()
    running = look(home)
    return _token(home) if running.alive and running.url == url.rstrip("/") else ""


def _answers_still(pid: int | None, url: str) -> bool:
    """Whether the server answers, or did a moment ago."""
    if time.monotonic() - _ANSWERED.get((pid, url), -_RECENT) < _RECENT:
        return True
    if not _answers(url):
        return False
    _ANSWERED[pid, url] = time.monotonic()
    return True


def _answers(url: str) -> bool:
    client = Client(url, timeout=5.0)
    try:
        client.reach()
    except Unreachable:
        return False
    finally:
        client.close()
    return True
