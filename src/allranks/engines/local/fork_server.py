"""The engine's side of the nursery: agents by fork, and how they ended."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping

# In the environment of the nursery and so of what it forks, whose own the kernel does not show.
NURSED = "ALLRANKS_NURSERY"
ARGV = (sys.executable, "-P", "-m", "allranks.agent")


class ForkServer:
    """Forks agents from a process that has one imported; started when first asked, and again
    when it is gone."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._codes: dict[int, int] = {}

    def fork(self, env: Mapping[str, str], cwd: str, lock: int, log: int) -> int:
        """Start an agent that holds ``lock`` and writes to ``log``; its keeper's process id.

        Raises OSError when it cannot be done.
        """
        try:
            return self._ask(env, cwd, lock, log)
        except (BrokenPipeError, ConnectionError, EOFError):
            self.close()
            return self._ask(env, cwd, lock, log)

    def code(self, pid: int) -> int | None:
        """How that keeper ended: its exit code, negative after a signal, None if it has not yet
        or nobody knows any more."""
        while self._socket is not None and self._hear(blocking=False) is not None:
            pass
        return self._codes.get(pid)

    def forget(self, pid: int) -> None:
        self._codes.pop(pid, None)

    def close(self) -> None:
        """End the nursery; what it forked lives on."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.wait()
        self._socket = self._process = None

    def _ask(self, env: Mapping[str, str], cwd: str, lock: int, log: int) -> int:
        if self._socket is None:
            self._start()
        assert self._socket is not None
        message = json.dumps({"env": dict(env), "cwd": cwd}).encode()
        socket.send_fds(self._socket, [message], [lock, log])
        while True:
            told = self._hear(blocking=True)
            if told is None:
                raise EOFError
            if "pid" in told:
                return int(told["pid"])

    def _hear(self, *, blocking: bool) -> dict[str, int] | None:
        assert self._socket is not None
        flags = 0 if blocking else socket.MSG_DONTWAIT
        try:
            message = self._socket.recv(1 << 16, flags)
        except BlockingIOError:
            return None
        if not message:
            return None
        told: dict[str, int] = json.loads(message)
        if "ended" in told:
            self._codes[told["ended"]] = told["code"]
        return told

    def _start(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            self._process = subprocess.Popen(
                [*ARGV[:-1], "allranks.agent.fork_server"],
                stdin=its.fileno(),
                env={**os.environ, NURSED: "1"},
                start_new_session=True,
            )
        self._socket = ours
