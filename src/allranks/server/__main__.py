"""The server process, `python -m allranks.server`: one per home, always on the same port."""

from __future__ import annotations

import argparse
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from allranks import disk_space, file_locks, folder_trees, settings
from allranks.errors import AllranksError, Conflict, ServerError
from allranks.http_limits.connection_limit import Listener
from allranks.server import handover
from allranks.server.handover import Inherited
from allranks.server.port_holder import holder
from allranks.settings import Home, read_json
from allranks.version import __version__

if TYPE_CHECKING:
    from allranks.store.postgres import ServerLock


# Tells servers apart that are one process: see `handover`.
_STARTED = time.time()


def main() -> int:
    options = _options()
    home = settings.home()
    try:
        inherited = Inherited.parse(options.inherit) if options.inherit else None
        serve(home, options.port, options.ready_fd, inherited)
        return 0
    except AllranksError as failure:
        error = failure
    except OSError as failure:
        error = settings.unusable(home, failure)
    _report(options.ready_fd, error.body())
    print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
    return error.exit_code


class _Formatter(logging.Formatter):
    """Prints no stack trace for expected errors, such as an unreachable database or disk."""

    def formatException(self, ei: Any) -> str:
        from sqlalchemy.exc import SQLAlchemyError  # lazy: loaded already when an error occurs

        if isinstance(ei[1], AllranksError | OSError | SQLAlchemyError | sqlite3.Error):
            return "    " + " ".join(str(getattr(ei[1], "orig", None) or ei[1]).split())
        return super().formatException(ei)


def serve(
    home: Home,
    port: int | None = None,
    ready_fd: int | None = None,
    inherited: Inherited | None = None,
) -> None:
    """Serve the home until SIGTERM or SIGINT. Raises AllranksError if it cannot start."""
    settings.make(home)
    handler = logging.StreamHandler()
    handler.setFormatter(_Formatter("%(asctime)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    lock = _lock(home) if inherited is None else inherited.lock
    if inherited is not None:
        handover.reap_children()
    held = None
    try:
        disk_space.release_if_full(home.root)
        where = settings.keep_database(home)
        if home.restoring.exists():
            from allranks.server.storage import restore  # lazy: only after an interrupted restore

            restore.finish(home)
        if isinstance(where, str):
            from allranks.store import database  # lazy: SQLAlchemy, only for PostgreSQL

            held = database.lock_database(where)
        sockets = _serve(home, port, ready_fd, held, inherited.sockets if inherited else ())
        if sockets:
            if held is not None:
                held.release()
            handover.become_next(home, Inherited(lock, sockets))
    except Exception as error:
        if explained := _explained(error, home):
            raise explained from error
        raise
    finally:  # released before an error is reported: the caller may start another server at once
        if held is not None:
            held.release()
        os.close(lock)


def _serve(
    home: Home,
    port: int | None,
    ready_fd: int | None,
    held: ServerLock | None,
    sockets: Sequence[int],
) -> tuple[int, ...]:
    """Serve until a signal. Returns the sockets for the next version, if one is to go on."""
    # Until this server has its port, another program may have it: nobody may send it a token.
    if (previous := _previous_port(home)) is not None:
        _write(home, previous, None)
    listening = _inherited(sockets) if sockets else _listen(home, port)
    # Imported after the port is bound: requests of waiting commands queue in its backlog. What is
    # imported stays, and garbage collections would go through it again and again: a sixth of the
    # start, and with hundreds of agents a fifth of all work. `app` exempts it and enables them.
    gc.disable()
    from allranks.engines.local import fork_server  # lazy: see above

    fork_server.start_early(home)
    from allranks.server.auth.identity import Auth  # lazy: see above

    number = listening[0].getsockname()[1]
    url = f"http://127.0.0.1:{number}"
    Auth(home)  # creates the token before the server can be found
    _write(home, number, url)

    from allranks.http_limits.server import SleepingServer, config  # lazy: imports uvicorn
    from allranks.server.app import create_app  # lazy: see above

    failures: list[Exception] = []
    app = create_app(home, settings.clocks(), url, failed=failures.append)
    server = SleepingServer(config(app, lifespan=True))
    server.ready = lambda: _report(ready_fd, {"url": url})
    if held is not None:
        held.keep(lost=lambda: setattr(server, "should_exit", True))
    kept: list[int] = []

    def hand_over() -> None:
        kept.extend(os.dup(listener.fileno()) for listener in listening)  # uvicorn closes its own
        server.should_exit = True

    handover.on_request(hand_over)
    try:
        server.run(sockets=listening)
    except SystemExit:  # uvicorn's, if the lifespan could not start
        if failures:
            raise failures[0] from None
        raise
    return tuple(kept)


def _explained(error: Exception, home: Home) -> AllranksError | None:
    """An error of the database in words; None for others."""
    from sqlalchemy.exc import DBAPIError  # lazy: loaded already when it occurs

    if not isinstance(error, DBAPIError | sqlite3.Error):
        return None
    from allranks.store.database import database_error  # lazy: as above

    return database_error(error, settings.database(home))


def _lock(home: Home) -> int:
    try:
        lock = file_locks.take(home.lock)
    except OSError as error:
        raise settings.unusable(home, error) from error
    if lock is None:
        hint = "show it: allranks server status; stop it: allranks server stop"
        raise Conflict("a server of this home is already running", where=str(home.root), hint=hint)
    return lock


def _listen(home: Home, port: int | None) -> list[socket.socket]:
    """Listen on ``port``, or on the home's port, which never changes: running agents use it. Where
    there is IPv6, on `::1`, too: browsers ask it first for the names of services' pages."""
    previous = _previous_port(home)
    requested = port if port is not None else previous
    number = requested
    if number is None:
        # lazy: only for a home's very first server
        from allranks.agent.network.ports import free_port

        number = free_port()
    try:
        listening: list[socket.socket] = [Listener(socket.AF_INET, ("127.0.0.1", number))]
        try:
            listening.append(Listener(socket.AF_INET6, ("::1", number)))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                listening[0].close()
                raise
        return listening
    except (OSError, OverflowError) as error:
        message = f"cannot listen on port {number}: {getattr(error, 'strerror', None) or error}"
        stop = "stop the program that uses it (`ss -ltnp` names it)"
        if (other := holder(number)) is not None:
            of_job = f" of the job {other.job}" if other.job else ""
            message += f": process {other.pid}{of_job} has it ({other.program})"
            stop = f"stop it (kill {other.pid})"
        hint = "allranks server start --port N (running jobs will not find the server)"
        raise ServerError(
            message,
            where=str(home.server) if requested == previous else "--port",
            hint=f"{stop}, or use another port: {hint}",
        ) from error


def _inherited(sockets: Sequence[int]) -> list[socket.socket]:
    """Those that ``_listen`` made in the version before."""
    families = (socket.AF_INET, socket.AF_INET6)
    pairs = zip(families, sockets, strict=False)
    return [Listener(family, None, fileno=number) for family, number in pairs]


def _previous_port(home: Home) -> int | None:
    port = read_json(home.server, dict).get("port")
    return port if isinstance(port, int) and 0 < port < 1 << 16 else None


def _write(home: Home, port: int, url: str | None) -> None:
    """Say where this server is; without a ``url``, that it starts."""
    about = {"pid": os.getpid(), "port": port, "url": url, "version": __version__}
    folder_trees.write_file(home.server, json.dumps({**about, "started": _STARTED}))


def _report(ready_fd: int | None, data: dict[str, Any]) -> None:
    """Report success or failure to the command that started this process, if it still runs."""
    if ready_fd is not None:
        with contextlib.suppress(BrokenPipeError), open(ready_fd, "w") as file:
            json.dump(data, file)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m allranks.server")
    parser.add_argument("--port", type=int)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--inherit", metavar="LOCK,SOCKET…")
    return parser.parse_args()


if __name__ == "__main__":
    for number in (signal.SIGHUP, handover.SIGNAL):  # the latter until it is handled
        signal.signal(number, signal.SIG_IGN)
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # of one that was in the foreground before it became this version
        sys.exit(128 + signal.SIGINT)
