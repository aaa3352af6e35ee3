"""The processes of a node: started each in a group of its own, watched, stopped as groups.

Not in a session of its own: the kernel shares the CPUs out by sessions first (sched_autogroup), and
where ranks outnumber CPUs those of several sessions train 5 % slower together than those of one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks import clock

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


class Process(NamedTuple):
    """What the agent runs: a rank of the user's, or a helper of the platform's (``rank`` None).
    A ``service`` never has to end by itself."""

    name: str
    log: Path
    rank: int | None = None
    service: bool = False


class Ended(NamedTuple):
    """A process that is no more. ``code`` is as the job's own is shown: 128 + N after signal N."""

    process: Process
    code: int
    at: float
    signal: str | None = None

    @staticmethod
    def of(process: Process, returncode: int, at: float | None = None) -> Ended:
        """From what waiting gave: negative after a signal, or what a shell made of one."""
        number = -returncode if returncode < 0 else returncode - 128
        known = returncode < 0 or number in _FATAL
        name = signal.Signals(number).name if known else None
        code = returncode if returncode >= 0 else 128 - returncode
        return Ended(process, code, at or clock.now(), name)


class Running:
    """The processes of one node in one attempt. Start and watch them from one thread, and look
    every ``pace`` seconds even where ``fds`` tell nothing."""

    pace = 5.0

    def __init__(self) -> None:
        self._procs: dict[str, tuple[Process, subprocess.Popen[bytes], int]] = {}

    def start(
        self,
        process: Process,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        fds: Sequence[int] = (),
    ) -> None:
        """Start it with its output, both streams in the order written, in its log, and with ``fds``
        kept open.

        The file is the pipe: it never blocks the rank, and holds every line whatever becomes of us.
        """
        with process.log.open("ab") as output:
            proc = subprocess.Popen(
                argv,
                cwd=cwd,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=fds,
                process_group=0,
            )
        self._procs[process.name] = (process, proc, os.pidfd_open(proc.pid))

    @property
    def fds(self) -> list[int]:
        """Readable as soon as one of the processes has ended."""
        return [fd for _, _, fd in self._procs.values()]

    @property
    def processes(self) -> list[Process]:
        """Those still running."""
        return [process for process, _, _ in self._procs.values()]

    def pids(self) -> dict[int, int]:
        """The process of each rank that runs; any thread may ask."""
        running = list(self._procs.values())
        return {process.rank: proc.pid for process, proc, _ in running if process.rank is not None}

    def reap(self) -> list[Ended]:
        """Those that ended since the last call, those ended by a signal first: their peers fail by
        themselves soon after, with an exit code."""
        found = []
        for process, proc, fd in list(self._procs.values()):
            code = proc.poll()
            if code is None:
                continue
            os.close(fd)
            del self._procs[process.name]
            found.append(Ended.of(process, code))
        return sorted(found, key=lambda ended: ended.signal is None)

    def send(self, number: signal.Signals) -> None:
        """Signal every process of each one's group: a shell alone would not hand it on."""
        for _, proc, _ in self._procs.values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(proc.pid, number)

    def kill(self, rank: int) -> None:
        """End every process of that rank's group, if it runs here: a rehearsal."""
        for process, proc, _ in self._procs.values():
            if process.rank == rank:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(proc.pid, signal.SIGKILL)

    def close(self) -> None:
        """Once none of them is left: let go of what they ran in."""


def last_lines(log: Path, most: int = 20) -> list[str]:
    """The end of a process's output, for the person who reads why it failed."""
    with contextlib.suppress(OSError), log.open("rb") as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        text = file.read().decode(errors="replace")
        return [line.rstrip() for line in text.splitlines() if line.strip()][-most:]
    return []
