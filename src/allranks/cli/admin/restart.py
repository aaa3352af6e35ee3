"""`allranks server restart`: the home's server becomes this version, and no job notices."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from allranks import file_locks
from allranks.agent.processes.ranks import last_lines
from allranks.cli.admin.server import own_home
from allranks.cli.output import show
from allranks.errors import Conflict, ServerError
from allranks.sdk.connection import find_server
from allranks.sdk.connection.find_server import Running
from allranks.settings import Home
from allranks.version import __version__

if TYPE_CHECKING:
    from allranks.server.upgrade import Check

# Seconds for the server to end what it does, and for the next one to answer.
_END, _ANSWER = 30.0, 60.0


def restart_options(parser: argparse.ArgumentParser) -> None:
    check = "only say whether this version can go on with this home; changes nothing"
    parser.add_argument("--check", action="store_true", help=check)
    no_backup = "change the database without a backup: you have one, such as PostgreSQL's own"
    parser.add_argument("--no-backup", action="store_true", help=no_backup)
    parser.epilog = "Jobs go on, and so do commands that wait for them."


def restart(options: argparse.Namespace) -> int:
    from allranks.server import upgrade  # lazy: the whole server

    home = own_home()
    before = find_server.look(home)
    if options.check:
        sentences = _findings(upgrade.check(home), before)
        return show.result(options, {"version": __version__, "ok": True}, *sentences)
    with _alone(home):
        check = upgrade.check(home)
        backup = _back_up(home) if check.migrates and not options.no_backup else None
        if before.alive and before.url is None:  # it starts
            before = find_server.start_server(home)
        began = time.monotonic()
        if not before.alive:
            find_server.start_server(home)
        elif before.hands_over:
            _hand_over(home, before)
        else:
            _replace(home)
        seconds = time.monotonic() - began
    server = find_server.look(home)
    answer = {
        "pid": server.pid,
        "url": server.url,
        "version": server.version,
        "before": before.version if before.alive else None,
        "backup": backup,
        "seconds": round(seconds, 2),
    }
    was = f"allranks {before.version}" if before.alive else "not running"
    sentence = f"the server at {server.url} is allranks {server.version} (it was {was})"
    more = [f"backup before the change of its database: {backup}"] if backup else []
    return show.result(options, answer, sentence, *more)


def _findings(check: Check, server: Running) -> list[str]:
    running = f"allranks {server.version}" if server.alive else "not running"
    sentences = [f"allranks {check.version} can go on with this home (its server: {running})"]
    if check.trial:
        sentences.append("the database is changed, after a backup (tried on a copy)")
    elif check.migrates:
        sentences.append("the database is changed (not tried: PostgreSQL has no copy)")
        sentences.append("its backup is yours to make, before `server restart --no-backup`")
    return sentences


@contextlib.contextmanager
def _alone(home: Home) -> Iterator[None]:
    """Raises Conflict during another restart."""
    lock = file_locks.take(home.root / "restart.lock") if home.root.is_dir() else None
    if lock is None and home.root.is_dir():
        raise Conflict(
            "the server is being restarted already",
            where=str(home.root),
            hint="wait for it; see `allranks server status`",
        )
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def _back_up(home: Home) -> str:
    from allranks.server.storage import backup  # lazy: as the server

    target = home.root / time.strftime("before-upgrade-%Y%m%d-%H%M%S.tar")
    return backup.write(home, target, False, lambda _: None).file


def _hand_over(home: Home, before: Running) -> None:
    """Have the server become this version in place."""
    from allranks.server import handover  # lazy: as the server

    handover.request(home, sys.executable, lambda number: find_server.end(home, number))
    _wait_for_next(home, before)


def _replace(home: Home) -> None:
    """End a server of a version that cannot become another one, and start this version, with the
    lock in between: commands that wait would start the version before."""
    from allranks.server.handover import Inherited  # lazy: as the server

    before = find_server.look(home)
    find_server.end(home, signal.SIGTERM)
    until = time.monotonic() + _END
    lock = None
    while lock is None:
        if time.monotonic() > until:
            message = "the server does not end; nothing is changed"
            raise ServerError(message, where=str(home.root), hint=f"see {home.log}")
        lock = file_locks.take(home.lock)
    try:
        find_server.start_process(home, Inherited(lock).words(), lock)
    finally:
        os.close(lock)
    _wait_for_next(home, before)


def _wait_for_next(home: Home, before: Running) -> None:
    """Raises ServerError with what the server said last, if the next one does not answer."""
    until = time.monotonic() + _ANSWER
    while time.monotonic() < until:
        server = find_server.look(home)
        if server.alive and server.started != before.started and find_server.answers(server):
            return
        if not server.alive:
            break
        time.sleep(0.02)
    lines = last_lines(home.log, 3)
    raise ServerError(
        f"allranks {__version__} did not start: {' / '.join(lines)[-500:] or 'it printed nothing'}",
        where=str(home.log),
        hint="jobs go on; the next command of the version that you install starts its server",
    )
