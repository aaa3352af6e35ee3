"""The user's processes: started each in a session of its own, watched, stopped as groups."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from allranks.plan.distributions import Rank

SHELL = "/bin/bash"

# What bash gives when the command it ran last was ended by a signal: 128 + the signal. Only those
# signals that nobody uses as an exit code on purpose are taken at that word.
_FATAL = (
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGKILL,
    signal.SIGSEGV,
    signal.SIGTERM,
)


class Ended(NamedTuple):
    """A rank that is no more. ``code`` is as the job's own is shown: 128 + N after signal N."""

    rank: Rank
    code: int
    at: float
    signal: str | None = None

    @staticmethod
    def of(rank: Rank, returncode: int) -> Ended:
        """From what waiting gave: negative after a signal, or what a shell made of one."""
        number = -returncode if returncode < 0 else returncode - 128
        known = returncode < 0 or number in _FATAL
        name = signal.Signals(number).name if known else None
        return Ended(rank, returncode if returncode >= 0 else 128 - returncode, time.time(), name)


class Running:
    """The ranks of one node in one attempt. Start and watch them from one thread."""

    def __init__(self) -> None:
        self._procs: dict[int, tuple[Rank, subprocess.Popen[bytes], int]] = {}

    def start(self, rank: Rank, command: str, cwd: Path, env: Mapping[str, str], log: Path) -> None:
        """Start one rank with its output, both streams in the order written, in ``log``.

        The file is the pipe: it never blocks the rank, and holds every line whatever becomes of us.
        """
        with log.open("ab") as output:
            proc = subprocess.Popen(
                [SHELL, "-c", command],
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._procs[rank.rank] = (rank, proc, os.pidfd_open(proc.pid))

    @property
    def fds(self) -> list[int]:
        """Readable as soon as one of the ranks has ended."""
        return [fd for _, _, fd in self._procs.values()]

    @property
    def ranks(self) -> list[Rank]:
        """Those still running."""
        return [rank for rank, _, _ in self._procs.values()]

    def reap(self) -> list[Ended]:
        """The ranks that ended since the last call, those ended by a signal first: their peers
        fail by themselves soon after, with an exit code."""
        found = []
        for rank, proc, fd in list(self._procs.values()):
            code = proc.poll()
            if code is None:
                continue
            os.close(fd)
            del self._procs[rank.rank]
            found.append(Ended.of(rank, code))
        return sorted(found, key=lambda ended: ended.signal is None)

    def send(self, number: signal.Signals) -> None:
        """Signal every process of each rank's group: a shell alone would not hand it on."""
        for _, proc, _ in self._procs.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(proc.pid, number)


def last_lines(log: Path, most: int = 20) -> list[str]:
    """The end of a rank's output, for the person who reads why it failed."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        text = file.read().decode(errors="replace")
        return [line.rstrip() for line in text.splitlines() if line.strip()][-most:]
    return []
