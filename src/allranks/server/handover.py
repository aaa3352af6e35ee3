"""Become another version of the server, in place: by exec, which keeps the process, the home's lock
and the listening sockets. Connections wait in the sockets' queues until the next version answers.

`allranks server restart` writes which Python that is into a file of the home, and sends a signal.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from allranks import folder_trees
from allranks.errors import ServerError
from allranks.settings import Home, read_json

SIGNAL = signal.SIGUSR2


class Inherited(NamedTuple):
    """Descriptors: of the home's lock, and of the sockets that listen."""

    lock: int
    sockets: tuple[int, ...] = ()

    @staticmethod
    def parse(text: str) -> Inherited:
        lock, *sockets = map(int, text.split(","))
        for number in (lock, *sockets):
            os.set_inheritable(number, False)
        return Inherited(lock, tuple(sockets))

    def words(self) -> list[str]:
        """For the command line of the server; ``parse`` reads them."""
        return ["--inherit", ",".join(map(str, (self.lock, *self.sockets)))]


def request(home: Home, python: str, send: Callable[[signal.Signals], None]) -> None:
    """Have the home's server become that of ``python``; ``send`` signals it. Raises OSError."""
    folder_trees.write_file(home.handover, json.dumps({"python": python}))
    send(SIGNAL)


def on_request(act: Callable[[], None]) -> None:
    """Call ``act`` at the first request, in the main thread."""

    def handle(*_: object) -> None:
        signal.signal(SIGNAL, signal.SIG_IGN)
        act()

    signal.signal(SIGNAL, handle)


def become_next(home: Home, inherited: Inherited) -> None:
    """Does not return. Raises ServerError if neither the requested Python can be started, nor the
    one that this process began with."""
    python = read_json(home.handover, dict).get("python")
    home.handover.unlink(missing_ok=True)
    for number in (inherited.lock, *inherited.sockets):
        os.set_inheritable(number, True)
    for path in (python, sys.executable):
        if isinstance(path, str):
            words = [path, "-P", "-m", "allranks.server", *inherited.words()]
            with contextlib.suppress(OSError, ValueError):
                os.execv(path, words)
    raise ServerError("the next version cannot be started", where=str(python), hint="see its log")


def reap_children() -> None:
    """Wait for the processes that this one had started before it became this version."""
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
    except OSError:
        return
    for pid in children:  # the router may live for weeks
        threading.Thread(target=_wait_for, args=(int(pid),), daemon=True).start()


def _wait_for(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
