"""Find the server, or start one: never two for one home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, BinaryIO, NamedTuple

from allranks import file_locks, settings
from allranks.errors import ServerError, Unreachable, from_body
from allranks.http_client import Client
from allranks.settings import Home
from allranks.version import __version__

# Servers this process has started. They outlive it on purpose; held so that Python, which would
# warn of a child left behind, knows it too.
_STARTED: list[subprocess.Popen[bytes]] = []

# How long a server may take to answer after it was started, or to end after it was told to.
_START = 30.0


class Running(NamedTuple):
    """What a home's server.json says of the server that last ran, and whether it still does."""

    pid: int | None
    url: str | None
    version: str | None
    alive: bool


def connect(*, start: bool = True, any_version: bool = False) -> Client:
    """A client of the server that ALLRANKS_SERVER names, else of the home's own, which is started
    when it is not running and ``start`` allows.

    Raises ServerError when it is of another version, cannot be started or does not answer.
    """
    named = os.environ.get("ALLRANKS_SERVER", "").strip()
    if named:
        token = os.environ.get("ALLRANKS_TOKEN", "").strip()
        known = os.environ.get("ALLRANKS_FINGERPRINT", "").strip().lower().replace(":", "")
        return Client(named, token or _token_if_it_is_ours(named), fingerprint=known)
    home = settings.home()
    found = look(home)
    if found.alive and found.url is not None and _answers(found.url):
        return _client(home, found, any_version)
    if not start:
        raise Unreachable(
            "no server is running for this home",
            where=str(home.root),
            hint="`allranks server start` starts one; so does every command that needs it",
        )
    return _client(home, start_server(home), any_version)


def ask(method: str, path: str, data: Any = None) -> Any:
    """What the server answers to one question, as JSON."""
    with connect() as client:
        return client.json(method, path, data)


def look(home: Home) -> Running:
    """The server of a home, without a word to it."""
    try:
        data: dict[str, Any] = json.loads(home.server.read_text())
    except (OSError, ValueError):
        data = {}
    alive = file_locks.is_held(home.lock)
    return Running(data.get("pid"), data.get("url"), data.get("version"), alive)


def start_server(home: Home, port: int | None = None) -> Running:
    """Start the home's server and wait until it listens; one that is starting is waited for."""
    until = time.monotonic() + _START
    while time.monotonic() < until:
        # Again when one that was just ending, or starting beside us, has let go meanwhile.
        if not file_locks.is_held(home.lock):
            _spawn(home, port)
        found = look(home)
        if found.alive and found.url is not None and _answers(found.url):
            return found
        time.sleep(0.02)
    raise ServerError(
        "a server of this home runs but does not answer",
        where=str(home.root),
        hint=f"`allranks server stop` ends it; what it said is in {home.log}",
    )


def wait_gone(home: Home, seconds: float) -> bool:
    """Whether the home's server is gone within so many seconds."""
    until = time.monotonic() + seconds
    while file_locks.is_held(home.lock):
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def end(home: Home, number: signal.Signals) -> None:
    """Signal a server that does not answer; it is known by the lock it holds."""
    found = look(home)
    if found.alive and found.pid is not None:
        os.kill(found.pid, number)


def _spawn(home: Home, port: int | None) -> None:
    read, write = os.pipe()
    argv = [sys.executable, "-P", "-m", "allranks.server", "--ready-fd", str(write)]
    if port is not None:
        argv += ["--port", str(port)]
    try:
        with _open_log(home) as log:
            started = subprocess.Popen(
                argv,
                cwd="/",
                env={**os.environ, "ALLRANKS_HOME": str(home.root)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[write],
                start_new_session=True,
            )
        _STARTED.append(started)
    finally:
        os.close(write)
    with open(read) as answer:
        said = answer.read()
    body = json.loads(said) if said else {}
    if "error" in body and body["error"] != "conflict":
        raise from_body(body)
    if not said:
        raise ServerError(
            "the server could not be started",
            where=str(home.root),
            hint=f"what it said is in {home.log}",
        )


def _open_log(home: Home) -> BinaryIO:
    settings.make(home)
    try:
        home.log.touch(mode=0o600)
        return open(home.log, "ab")
    except OSError as error:
        raise settings.unusable(home, error) from error


def _client(home: Home, found: Running, any_version: bool) -> Client:
    if found.version != __version__ and not any_version:
        raise ServerError(
            f"the server of this home is allranks {found.version}, this command is {__version__}",
            where=str(home.root),
            hint="`allranks server stop` ends it (and its local jobs); the next command starts "
            "one of this version",
        )
    assert found.url is not None
    return Client(found.url, os.environ.get("ALLRANKS_TOKEN", "").strip() or _token(home))


def _token(home: Home) -> str:
    try:
        return home.token.read_text().strip()
    except OSError as error:
        raise ServerError(
            f"the token cannot be read: {(error.strerror or str(error)).lower()}",
            where=str(home.token),
            hint="only the user who owns the home may use its server",
        ) from error


def _token_if_it_is_ours(url: str) -> str:
    """The home's token for the home's own server; a stranger is not shown it."""
    home = settings.home()
    return _token(home) if look(home).url == url.rstrip("/") else ""


def _answers(url: str) -> bool:
    client = Client(url, timeout=5.0)
    try:
        client.reach()
    except Unreachable:
        return False
    finally:
        client.close()
    return True
