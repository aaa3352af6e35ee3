"""The processes of a node: started, watched and stopped, each in its own process group.

They share a session: the kernel divides CPUs by session first (sched_autogroup), and where ranks
outnumber CPUs, ranks in several sessions train 5 % slower than in one.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from allranks import clock, folder_trees
from allranks.agent.processes.keeper import kill_family

SHELL = "/bin/bash"

# bash exits with 128 + N if its last command was ended by signal N. Only signals whose codes nobody
# uses on purpose are interpreted that way.
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
    """A process that the agent runs: a rank, or a helper (``rank`` None). A ``service`` does not
    have to end by itself."""

    name: str
    log: Path
    rank: int | None = None
    service: bool = False


class Ended(NamedTuple):
    """An ended process. ``code`` is 128 + N after signal N."""

    process: Process
    code: int
    at: float
    signal: str | None = None

    @staticmethod
    def of(process: Process, returncode: int, at: float | None = None) -> Ended:
        """From a return code: negative after a signal, or a shell's code for one."""
        number = -returncode if returncode < 0 else returncode - 128
        is_signal = returncode < 0 or number in _FATAL
        name = signal.Signals(number).name if is_signal else None
        code = returncode if returncode >= 0 else 128 - returncode
        return Ended(process, code, at or clock.now(), name)


class Started(NamedTuple):
    """What a rank was started with, for those who enter it."""

    cwd: Path
    env: Mapping[str, str]


class Child(Protocol):
    """A started process. ``poll`` returns its exit code, negative after a signal, or None."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...


class Running:
    """The processes of one node in one attempt. Start and watch them from one thread, and poll
    every ``pace`` seconds even if no ``fds`` are ready."""

    pace = 5.0

    def __init__(self) -> None:
        self._procs: dict[str, tuple[Process, Child, int]] = {}
        # By rank, also of those that have ended.
        self.started: dict[int, Started] = {}

    def start(
        self,
        process: Process,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        fds: Sequence[int] = (),
    ) -> None:
        """Start it with both output streams, in the order written, in its log file, and with
        ``fds`` kept open.

        A file instead of a pipe never blocks the rank, and keeps every line if the agent dies.
        """
        with folder_trees.open_file(process.log, "ab") as output:
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
        self.add(process, proc, os.pidfd_open(proc.pid))

    def add(self, process: Process, child: Child, pidfd: int) -> None:
        """Watch a process that was started elsewhere, in a process group of its own. ``pidfd`` is
        closed once it has ended."""
        self._procs[process.name] = (process, child, pidfd)

    @property
    def fds(self) -> list[int]:
        """Descriptors that become readable when a process has ended."""
        return [fd for _, _, fd in self._procs.values()]

    @property
    def processes(self) -> list[Process]:
        """The running processes."""
        return [process for process, _, _ in self._procs.values()]

    def pids(self) -> dict[int, int]:
        """The process id of each running rank. Thread-safe."""
        running = list(self._procs.values())
        return {process.rank: proc.pid for process, proc, _ in running if process.rank is not None}

    def reap(self) -> list[Ended]:
        """The processes that ended since the last call, those ended by a signal first: their peers
        fail as a consequence, with an exit code."""
        exited = []
        for process, proc, fd in list(self._procs.values()):
            code = proc.poll()
            if code is None:
                continue
            os.close(fd)
            del self._procs[process.name]
            exited.append(Ended.of(process, code))
        return sorted(exited, key=lambda ended: ended.signal is None)

    def send(self, number: signal.Signals) -> None:
        """Signal every process of each one's group: a shell alone would not hand it on. SIGKILL
        spares the helpers that then remove shared memory."""
        for _, proc, _ in self._procs.values():
            if number is signal.SIGKILL:
                kill_family(proc.pid)
                continue
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(proc.pid, number)

    def kill(self, rank: int) -> None:
        """End every process of that rank, if it runs here: a rehearsal."""
        for process, proc, _ in self._procs.values():
            if process.rank == rank:
                kill_family(proc.pid)

    def close(self) -> None:
        """Once none of them is left: let go of what they ran in."""


def last_lines(log: Path, most: int = 20) -> list[str]:
    """The end of a process's output, for the person who reads why it failed."""
    with contextlib.suppress(OSError), folder_trees.open_file(log) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
        text = file.read().decode(errors="replace")
        return [line.rstrip() for line in text.splitlines() if line.strip()][-most:]
    return []
