"""Keep a failed attempt as it is: failed Pythons wait in `inside/allranks_hold.py`, all other
processes of the job are stopped where they are."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.agent.processes import rank_messages
from allranks.agent.processes.rank_processes import RankProcesses
from allranks.agent.programs.allranks_warm.processes import below, parent_of
from allranks.unix_sockets import short_path

# The folder of the attempt's folder in which processes that ask have their sockets.
FOLDER = "hold"
# Bytes of a request, and seconds for a process that has connected to send it.
_LONGEST, _PATIENCE = 4096, 1.0
# What reading a request raises: any process of the job may write one.
_MALFORMED = (OSError, ValueError, KeyError, TypeError)
# Seconds between two looks for processes that go on, or were started, while others are stopped.
_PACE = 0.05
_ROUNDS = 5


class Failed(NamedTuple):
    """A Python that has failed and waits: its rank, and the exit code that it is about to have."""

    rank: int
    code: int
    pid: int


class Hold:
    """What is held on this node. ``fds`` become readable when a process asks to be kept."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / FOLDER
        self.folder.mkdir(mode=0o700)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        with short_path(self.folder / "agent") as path:
            self._listener.bind(path)
        self._listener.listen(64)
        self._kept: dict[int, socket.socket] = {}
        # The ranks that have failed and wait.
        self.ranks: set[int] = set()
        self._stopped: set[int] = set()
        self.has_stopped = False

    @property
    def fds(self) -> list[int]:
        return [self._listener.fileno()]

    def failed(self) -> Failed | None:
        """The next process that asks. It waits until it is released."""
        with contextlib.suppress(*_MALFORMED):
            connection, _ = self._listener.accept()
            try:
                connection.settimeout(_PATIENCE)
                request = rank_messages.load(connection.recv(_LONGEST))
                # As this node counts: in a container it has another number.
                whose = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                failed = Failed(_small(request["rank"]), _small(request["code"]), _pid(whose))
                connection.sendall(b"hold")
            except _MALFORMED:
                connection.close()
                raise
            self._kept[failed.pid] = connection
            self.ranks.add(failed.rank)
            return failed
        return None

    def stop_others(self, roots: Mapping[int, int]) -> None:
        """Stop the processes of all ranks but those that are kept, with what is above and below
        them. ``roots`` are the ranks' first processes."""
        self.has_stopped = True
        spared: set[int] = set()
        for pid in self._kept:
            spared |= {pid, *below(pid), *_above(pid)}
        # What runs may start more until it is stopped.
        for _ in range(_ROUNDS):
            of_ranks = RankProcesses().members(roots).values()
            new = {pid for pids in of_ranks for pid in pids} - spared - self._stopped
            if not new:
                return
            self._stopped |= {pid for pid in new if _send(pid, signal.SIGSTOP)}
            time.sleep(_PACE)

    def let_go(self) -> None:
        """Let the failed processes end as they would have, with those that were started beside
        them, for which torch's launcher waits. No more are kept."""
        self._listener.close()
        for pid, connection in self._kept.items():
            beside = {other for launcher in _above(pid) for other in below(launcher)}
            self._go_on(beside & self._stopped)
            connection.close()
        self._kept.clear()

    def close(self) -> None:
        """Let all processes go on; twice is once."""
        self.let_go()
        self._go_on({*self._stopped})

    def _go_on(self, pids: set[int]) -> None:
        for pid in pids:
            _send(pid, signal.SIGCONT)
        self._stopped -= pids


def _small(number: object) -> int:
    if type(number) is not int or abs(number) >= 2**31:
        raise ValueError(number)
    return number


def _pid(credentials: bytes) -> int:
    return int(struct.unpack("3i", credentials)[0])


def _above(pid: int) -> set[int]:
    """What has started it, below this process."""
    above: set[int] = set()
    with contextlib.suppress(OSError, IndexError, ValueError):
        while (pid := parent_of(pid)) > 1 and pid != os.getpid():
            above.add(pid)
    return above


def _send(pid: int, number: int) -> bool:
    """Whether it could be signalled: it may be gone, or another user's in a container."""
    try:
        os.kill(pid, number)
    except OSError:
        return False
    return True
