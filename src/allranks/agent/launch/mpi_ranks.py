"""Ranks that another program starts (mpirun): written down before, then read through files.

Each has ``N.json`` (what it is to be), then ``N.pid``, then ``N.ended``; see ``shim``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

from allranks.agent import programs
from allranks.agent.processes.keeper import below
from allranks.agent.processes.ranks import Ended, Process


class Hosted:
    """The ranks of one node in one attempt. ``folder`` is shared by all nodes of a host, which
    mpirun takes for one; its path has no blanks, at which mpirun takes words apart."""

    def __init__(self, folder: Path, node: int) -> None:
        self.folder, self.scratch = folder, folder / f"node-{node}"
        self._expected: list[Process] = []
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError(13, "Another user has this folder", str(folder))
        self.scratch.mkdir(mode=0o700)

    @property
    def program(self) -> list[str]:
        """What is to be started once for each rank, with ``ALLRANKS_RANKS`` set to ``folder``."""
        return [sys.executable, "-I", "-S", programs.path_of("mpi_shim.py")]

    def expect(
        self,
        process: Process,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        instead: Mapping[str, str],
    ) -> None:
        """Write down what the rank is to be; ``instead`` are values for variables of mpirun's."""
        told = {"command": command, "cwd": str(cwd), "env": dict(env), "instead": dict(instead)}
        told["log"] = str(process.log)
        process.log.touch(0o600)
        path = self.folder / f"{process.rank}.json"
        new = path.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(told, file)
        new.rename(path)
        self._expected.append(process)

    def ended(self) -> list[Ended]:
        """Those that have ended, the earliest first."""
        found = []
        for process in self._expected:
            with contextlib.suppress(OSError, ValueError):
                told = json.loads((self.folder / f"{process.rank}.ended").read_text())
                found.append(Ended.of(process, told["code"], told["at"]))
        return sorted(found, key=lambda each: each.at)

    def failure(self) -> Ended | None:
        """The first that failed by itself. One ended by SIGTERM was told to: mpirun's own way of
        ending the others."""
        failed = (each for each in self.ended() if each.code and each.signal != "SIGTERM")
        return next(failed, None)

    def cut_short(self) -> Ended | None:
        """One that was ended though it had not failed, by mpirun most likely."""
        gone = [each for each in self._expected if (pid := self._pid(each)) and not _is_alive(pid)]
        # Read after: a shim writes down how its rank ended before it ends itself.
        ended = {each.process.rank: each for each in self.ended()}
        for process in gone:
            found = ended.get(process.rank)
            if found is None or found.signal == "SIGTERM":
                return found or Ended.of(process, -signal.SIGKILL)
        return None

    def done(self) -> bool:
        """Whether all have ended, and well."""
        ended = self.ended()
        return len(ended) == len(self._expected) and not any(each.code for each in ended)

    def alive(self) -> dict[int, int]:
        """Process id of each rank that has begun and not ended."""
        over = {each.process.rank for each in self.ended()}
        return {
            each.rank: pid
            for each in self._expected
            if each.rank is not None and each.rank not in over
            if (pid := self._pid(each)) and _is_alive(pid)
        }

    def _pid(self, process: Process) -> int:
        """The shim's process id; 0 before it has written it."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.folder / f"{process.rank}.pid").read_text())
        return 0

    def send(self, number: signal.Signals) -> None:
        """Signal every process of each living rank's group."""
        for pid in self.alive().values():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), number)

    def kill(self, rank: int) -> None:
        """End all of that rank but its shim, which is to say how: a rehearsal."""
        if shim := self.alive().get(rank):
            for pid in below(shim):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)

    @staticmethod
    def clean(folder: Path, node: int) -> None:
        """Remove what is this node's; with the last node of its host, everything."""
        shutil.rmtree(folder / f"node-{node}", ignore_errors=True)
        if not any(folder.glob("node-*")):
            shutil.rmtree(folder, ignore_errors=True)


def is_listening(address: str, port: int) -> bool:
    """Whether something accepts connections there, within a second."""
    try:
        socket.create_connection((address, port), timeout=1.0).close()
    except OSError:
        return False
    return True


def _is_alive(pid: int) -> bool:
    """Not a zombie either: nobody may have waited for it yet."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
