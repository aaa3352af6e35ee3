"""The engine's side of `agent/fork_server.py`: fork agents and collect their exit codes."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from allranks.engines import pinned_code
from allranks.settings import FORK_SERVER, Home

# How many files processes of the user may open.
_FILES = resource.getrlimit(resource.RLIMIT_NOFILE)
ARGV = (sys.executable, "-P", "-m", "allranks.agent")
# Fork servers that started before their engine was made, by their folder.
_early: dict[Path, ForkServer] = {}


def start_early(home: Home) -> None:
    """Start the fork server of an engine that is made later, if this machine has run gangs of the
    home or nothing has. It then imports its modules beside this process."""
    used = [*home.engines.iterdir()] if home.engines.is_dir() else []
    if not used or any(folder.name == "local" for folder in used):
        _early[home.warm] = started = ForkServer(home)
        threading.Thread(target=started.start, name="fork server", daemon=True).start()


def of(home: Home) -> ForkServer:
    """The fork server that started early, or one that starts on first use."""
    return _early.pop(home.warm, None) or ForkServer(home)


def variables(home: Home, *others: str) -> Mapping[str, str]:
    """The variable by which agents find the code that this server began with, before ``others``."""
    copy = pinned_code.pin(home.pinned)
    return {} if copy is None else {"PYTHONPATH": os.pathsep.join((str(copy), *others))}


class ForkServer:
    """Forks agents from a process that has imported one. It starts on first use, and again if it
    has died. In the home's folder ``warm`` it answers agents that need a server of imported
    modules."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._codes: dict[int, int] = {}
        self._starting = threading.Lock()

    def start(self) -> None:
        """Start the process now, if it can be started. Thread-safe."""
        with contextlib.suppress(OSError):
            self._connect()

    def fork(self, env: Mapping[str, str], cwd: str, lock: int, log: int) -> int:
        """Start an agent that holds ``lock`` and writes to ``log``. Return its keeper's process id.

        Raises OSError.
        """
        try:
            return self._request(env, cwd, lock, log)
        except (BrokenPipeError, ConnectionError, EOFError):
            self.close()
        try:
            return self._request(env, cwd, lock, log)
        except EOFError as error:
            raise OSError(errno.EPIPE, "the process that starts agents has ended") from error

    def code(self, pid: int) -> int | None:
        """Return the exit code of a keeper, negative after a signal; None if it runs or is
        unknown."""
        while self._socket is not None and self._receive(blocking=False) is not None:
            pass
        return self._codes.get(pid)

    def forget(self, pid: int) -> None:
        self._codes.pop(pid, None)

    def close(self) -> None:
        """End the fork server; the agents it forked keep running."""
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.wait()
        self._socket = self._process = None

    def _request(self, env: Mapping[str, str], cwd: str, lock: int, log: int) -> int:
        self._connect()
        assert self._socket is not None
        message = json.dumps({"env": dict(env), "cwd": cwd}).encode()
        socket.send_fds(self._socket, [message], [lock, log])
        while True:
            reply = self._receive(blocking=True)
            if reply is None:
                raise EOFError
            if "pid" in reply:
                return int(reply["pid"])

    def _receive(self, *, blocking: bool) -> dict[str, int] | None:
        assert self._socket is not None
        flags = 0 if blocking else socket.MSG_DONTWAIT
        try:
            message = self._socket.recv(1 << 16, flags)
        except BlockingIOError:
            return None
        if not message:
            return None
        reply: dict[str, int] = json.loads(message)
        if "ended" in reply:
            self._codes[reply["ended"]] = reply["code"]
        return reply

    def _connect(self) -> None:
        with self._starting:
            if self._socket is None:
                self._start()

    def _start(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with its:
            # What the code needs of others may be there, too.
            inherited = filter(None, [os.environ.get("PYTHONPATH")])
            self._process = subprocess.Popen(
                [*ARGV[:-1], "allranks.agent.fork_server"],
                stdin=its.fileno(),
                env={
                    **os.environ,
                    **variables(self._home, *inherited),
                    FORK_SERVER: "1",
                    "ALLRANKS_WARM": str(self._home.warm),
                },
                start_new_session=True,
            )
        # This server may have raised its own limit; a rank's does not depend on that.
        resource.prlimit(self._process.pid, resource.RLIMIT_NOFILE, _FILES)
        self._socket = ours
