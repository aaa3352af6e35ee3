"""The server process: `python -m allranks.server`. One a home, on one port, for good."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import file_locks, settings
from allranks.errors import AllranksError, Conflict, ServerError
from allranks.server.auth.identity import Auth
from allranks.server.http.connection_limit import Listener
from allranks.settings import Home
from allranks.version import __version__

if TYPE_CHECKING:
    from allranks.store.postgres import ServerLock


def main() -> int:
    options = _options()
    home = settings.home()
    try:
        serve(home, options.port, options.ready_fd)
        return 0
    except AllranksError as told:
        error = told
    except OSError as told:
        error = settings.unusable(home, told)
    _tell(options.ready_fd, error.body())
    print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
    return error.exit_code


class _Sentences(logging.Formatter):
    """A stack trace only for what nobody has foreseen: a database or disk that is away is not."""

    def formatException(self, ei: Any) -> str:
        from sqlalchemy.exc import SQLAlchemyError  # lazy: it is there once anything went wrong

        if isinstance(ei[1], AllranksError | OSError | SQLAlchemyError | sqlite3.Error):
            return "    " + " ".join(str(getattr(ei[1], "orig", None) or ei[1]).split())
        return super().formatException(ei)


def serve(home: Home, port: int | None = None, ready_fd: int | None = None) -> None:
    """Serve the home until asked to end; raises AllranksError when it cannot begin."""
    settings.make(home)
    handler = logging.StreamHandler()
    handler.setFormatter(_Sentences("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    lock = _lock(home)
    held = None
    try:
        where = settings.keep_database(home)
        if home.restoring.exists():
            from allranks.server.storage import restore  # lazy: seldom one was cut short

            restore.finish(home)
        if isinstance(where, str):
            from allranks.store import database  # lazy: bind the port first where possible

            held = database.lock_database(where)
        _serve(home, port, ready_fd, held)
    finally:  # before any word of a failure: who hears it may start another at once
        if held is not None:
            held.release()
        os.close(lock)


def _serve(home: Home, port: int | None, ready_fd: int | None, held: ServerLock | None) -> None:
    listening = _listen(home, port)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    Auth(home)  # whoever finds the server from here on finds the token, too
    _write(home, listening)

    # Imported here, after the port is bound: a command that waits for this server is already
    # in its backlog while the second of imports goes on.
    import uvicorn  # lazy: see above

    from allranks.server.app import create_app  # lazy: see above
    from allranks.server.http.slow_clients import Patient  # lazy: imports uvicorn

    app = create_app(home, settings.clocks(), url)
    config = uvicorn.Config(
        app,
        http=Patient,
        loop="asyncio",  # see `listener`: uvloop accepts past the socket
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=1,
    )
    server = uvicorn.Server(config)
    if held is not None:
        held.keep(lost=lambda: setattr(server, "should_exit", True))
    _tell(ready_fd, {"url": url})
    server.run(sockets=[listening])


def _lock(home: Home) -> int:
    try:
        lock = file_locks.take(home.lock)
    except OSError as error:
        raise settings.unusable(home, error) from error
    if lock is None:
        raise Conflict(
            "a server of this home is already running",
            where=str(home.root),
            hint="`allranks server status` shows it, `allranks server stop` ends it",
        )
    return lock


def _listen(home: Home, port: int | None) -> socket.socket:
    """A home keeps its port: living agents know it by no other name."""
    kept = _kept_port(home)
    asked = port if port is not None else kept
    try:
        return Listener(socket.AF_INET, ("127.0.0.1", _free() if asked is None else asked))
    except (OSError, OverflowError) as error:
        raise ServerError(
            f"port {asked} cannot be listened on: {getattr(error, 'strerror', None) or error}",
            where=str(home.server) if asked == kept else "--port",
            hint="end the program that holds it (`ss -ltnp` names it), or move the home to another "
            "port: allranks server start --port N (running jobs would not find it)",
        ) from error


def _free() -> int:
    from allranks.agent.network import ports  # lazy: only a home's very first server

    held = ports.hold(1)
    (number,) = ports.numbers(held)
    ports.release(held)
    return number


def _kept_port(home: Home) -> int | None:
    try:
        return int(json.loads(home.server.read_text())["port"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _write(home: Home, listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    text = json.dumps(
        {
            "pid": os.getpid(),
            "port": port,
            "url": f"http://127.0.0.1:{port}",
            "version": __version__,
        }
    )
    beside = Path(f"{home.server}.new")
    beside.touch(mode=0o600)
    beside.write_text(text)
    beside.replace(home.server)


def _tell(ready_fd: int | None, data: dict[str, Any]) -> None:
    """Tell the command that started us how it went, once; it may have been interrupted."""
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError), open(ready_fd, "w") as file:
            json.dump(data, file)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m allranks.server")
    parser.add_argument("--port", type=int)
    parser.add_argument("--ready-fd", type=int)
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    sys.exit(main())
