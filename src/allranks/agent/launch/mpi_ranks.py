"""Ranks that mpirun starts: the agent describes them in files and follows them through files.

Rank N has ``N.json`` (its description), then ``N.pid`` (locked while its shim lives), then
``N.ended`` (its exit code); see ``agent.programs.mpi_shim``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks import file_locks, folder_trees
from allranks.agent import programs
from allranks.agent.processes import rank_messages
from allranks.agent.processes.ranks import Ended, Process
from allranks.agent.programs.allranks_warm.processes import below

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer


class MpiRanks:
    """The ranks of one node in one attempt. Without containers, all nodes of a host share
    ``folder``, because mpirun sees one host. Its path has no blanks, where mpirun would split it.
    ``container`` is the node's, if any: its process ids mean nothing outside, so signals are sent
    from inside."""

    def __init__(self, folder: Path, node: int, container: NodeContainer | None = None) -> None:
        self.folder, self.scratch, self._container = folder, folder / f"node-{node}", container
        self._expected: list[Process] = []
        folder.mkdir(mode=0o700, exist_ok=True)
        if folder.stat().st_uid != os.geteuid():
            raise PermissionError(13, "Another user has this folder", str(folder))
        self.scratch.mkdir(mode=0o700)

    @property
    def program(self) -> list[str]:
        """The command of each rank for mpirun, which needs ``ALLRANKS_RANKS=folder``."""
        python = sys.executable if self._container is None else "python3"
        return [python, "-I", "-S", programs.path_of("mpi_shim.py")]

    def expect(
        self,
        process: Process,
        command: str,
        cwd: Path,
        env: Mapping[str, str],
        overrides: Mapping[str, str],
    ) -> None:
        """Describe a rank for its shim; ``overrides`` replace variables that mpirun sets."""
        description: dict[str, Any] = {"command": command, "cwd": str(cwd), "env": dict(env)}
        description |= {"overrides": dict(overrides), "log": str(process.log)}
        process.log.touch(0o600)
        path = self.folder / f"{process.rank}.json"
        new = path.with_suffix(".new")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(description, file)
        new.rename(path)
        self._expected.append(process)

    def ended(self) -> list[Ended]:
        """Those that have ended, the earliest first."""
        ended = []
        for process in self._expected:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                file = folder_trees.read_file(self.folder / f"{process.rank}.ended")
                result = rank_messages.load(file)
                ended.append(Ended.of(process, result["code"], result["at"]))
        return sorted(ended, key=lambda end: end.at)

    def failure(self) -> Ended | None:
        """The first that failed by itself. One ended by SIGTERM was told to: mpirun's own way of
        ending the others."""
        failed = (end for end in self.ended() if end.code and end.signal != "SIGTERM")
        return next(failed, None)

    def cut_short(self) -> Ended | None:
        """A rank that ended without failing itself, most likely killed by mpirun."""
        gone = [each for each in self._expected if self._pid(each) and not self._lives(each)]
        # Read last, because a shim records the exit code before it ends.
        ended = {end.process.rank: end for end in self.ended()}
        for process in gone:
            result = ended.get(process.rank)
            if result is None or result.signal == "SIGTERM":
                return result or Ended.of(process, -signal.SIGKILL)
        return None

    def done(self) -> bool:
        """Whether all have ended with success."""
        ended = self.ended()
        return len(ended) == len(self._expected) and not any(end.code for end in ended)

    def alive(self) -> dict[int, int]:
        """The process id of each running rank's shim, as the shim sees it."""
        over = {end.process.rank for end in self.ended()}
        return {
            process.rank: pid
            for process in self._expected
            if process.rank is not None and process.rank not in over
            if (pid := self._pid(process)) and self._lives(process)
        }

    def pids(self) -> dict[int, int]:
        """As ``alive``, but empty if they run in a container, where process ids differ."""
        return self.alive() if self._container is None else {}

    def _file(self, process: Process) -> Path:
        return self.folder / f"{process.rank}.pid"

    def _pid(self, process: Process) -> int:
        """The shim's process id; 0 before it has written it."""
        with contextlib.suppress(OSError, ValueError):
            return int(folder_trees.read_file(self._file(process), 20))
        return 0

    def _lives(self, process: Process) -> bool:
        return file_locks.is_held(self._file(process))

    def send(self, number: signal.Signals) -> None:
        """Signal every process of each living rank's group."""
        alive = self.alive().values()
        if self._container is not None and alive:
            groups = " ".join(f"-{pid}" for pid in alive)
            self._inside(["/bin/bash", "-c", f"kill -s {number.name[3:]} -- {groups}"])
            return
        for pid in alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(os.getpgid(pid), number)

    def kill(self, rank: int) -> None:
        """Kill a rank for a rehearsal; its shim stays to record the exit code."""
        shim = self.alive().get(rank)
        if shim is None:
            return
        if self._container is not None:
            self._inside([*self.program, str(shim)])
            return
        for pid in below(shim):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)

    def _inside(self, argv: Sequence[str]) -> None:
        assert self._container is not None
        self._container.start(self.folder / "signals.log", argv, self.folder, {})

    @staticmethod
    def clean(folder: Path, node: int) -> None:
        """Remove this node's files; if it is the last one of its host, the whole folder."""
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
