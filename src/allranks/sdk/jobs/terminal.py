"""The jobs that were submitted from this terminal, in a file of the home.

A terminal is a session. Its id alone is not enough: after the session another one may get it. So
the file is named by host, id, and when the session's leader started.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from allranks import settings
from allranks.sdk.connection import contexts

_MOST = 20


def remember(names: Iterable[str]) -> None:
    """Add jobs submitted just now. Does nothing without a session or a writable home."""
    file = _file()
    if file is None:
        return
    with contextlib.suppress(OSError):
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            _clean(file.parent)
        server = _server()
        lines = "".join(f"{server}\t{name}\n" for name in names)
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as opened:
            opened.write(lines)


def submitted() -> list[str]:
    """The newest jobs submitted from here to this server, the newest first."""
    file = _file()
    try:
        lines = file.read_text(errors="replace").splitlines() if file is not None else []
    except OSError:
        return []
    own = _server()
    parts = (line.partition("\t") for line in reversed(lines))
    names = (name for server, _, name in parts if server == own)
    return list(dict.fromkeys(names))[:_MOST]


def _server() -> str:
    """The URL of a server on another machine; empty for the home's own, whose port changes."""
    server = contexts.chosen()
    return server.url if server is not None else ""


def _file() -> Path | None:
    session = os.getsid(0)
    started = _started(str(session))
    if started is None:
        return None
    return settings.home().terminals / f"{session}-{started}@{os.uname().nodename}"


def _started(process: str) -> str | None:
    """When a process started, in ticks since the machine did; None if it is not there."""
    try:
        status = Path("/proc", process, "stat").read_bytes()
    except OSError:
        return None
    # Before the last parenthesis stands the program's name, which may be anything.
    return status.rpartition(b")")[2].split()[19].decode()


def _clean(folder: Path) -> None:
    """Remove the files of this host's sessions that have ended."""
    for file in folder.iterdir():
        name, _, host = file.name.partition("@")
        session, _, started = name.partition("-")
        if host == os.uname().nodename and _started(session) != started:
            file.unlink(missing_ok=True)
