"""The agent's connection to the process that forks its warm ranks: `programs/allranks_warm`."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import resource
import select
import signal
import socket
from collections.abc import Mapping
from typing import Any

from allranks.agent.programs.allranks_warm.wire import MESSAGE, send

# Seconds for a job server to kill what is left, or to report an exit.
_ENDING = 10.0


class WarmProcess:
    """A rank that a server forked, with the part of Popen's interface that ``Running`` uses."""

    def __init__(self, server: WarmConnection, pid: int) -> None:
        self._server, self.pid = server, pid

    def poll(self) -> int | None:
        """The exit code, negative after a signal; None while it runs."""
        return self._server.code(self.pid)


class WarmConnection:
    """A connection to the server's process for this node. Closing it ends what is left there."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._codes: dict[int, int] = {}
        self._pidfds: dict[int, int] = {}

    def settle(self) -> None:
        """Have it take on what ranks would inherit from this agent, and hold the engine's lock."""
        kinds = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]
        limits = [(kind, resource.getrlimit(kind)) for kind in kinds]
        cpus = sorted(os.sched_getaffinity(0))
        lock = os.environ.get("ALLRANKS_AGENT_LOCK")
        fds = [int(lock)] if lock else []
        send(self._socket, {"umask": _umask(), "limits": limits, "cpus": cpus}, fds)

    def fork(self, message: Mapping[str, Any], log: int) -> tuple[int, int]:
        """Start a rank. Return its process id, and a descriptor of it that is the caller's. Raises
        OSError, after which it does not run."""
        send(self._socket, message, [log])
        while True:
            reply = self._receive(_ENDING)
            if reply is None:
                with contextlib.suppress(OSError):
                    # A server that was only slow ends the rank: it is about to start cold.
                    self._socket.shutdown(socket.SHUT_WR)
                raise ConnectionResetError(errno.ECONNRESET, "the warm server has ended")
            if "failed" in reply:
                raise OSError(errno.EAGAIN, reply["failed"])
            if "pid" in reply:
                pid = int(reply["pid"])
                self._pidfds[pid] = reply["pidfd"]
                return pid, os.dup(reply["pidfd"])

    def code(self, pid: int) -> int | None:
        if pid in self._pidfds and pid not in self._codes:
            # It is a zombie, or gone, before the job server reports how it ended.
            ended = bool(select.select([self._pidfds[pid]], [], [], 0)[0])
            while self._receive(_ENDING if ended else 0.0) is not None:
                if pid in self._codes:
                    break
            if not ended and pid not in self._codes:
                return None
            os.close(self._pidfds.pop(pid))
            # Without its job server it was killed, too.
            self._codes.setdefault(pid, -signal.SIGKILL)
        return self._codes.get(pid)

    def close(self) -> None:
        """Have everything that is left killed, and wait for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._receive(_ENDING) is not None:
                pass
        self._socket.close()
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()

    def _receive(self, seconds: float) -> dict[str, Any] | None:
        if not select.select([self._socket], [], [], seconds)[0]:
            return None
        try:
            message, fds, *_ = socket.recv_fds(self._socket, MESSAGE, 1, socket.MSG_CMSG_CLOEXEC)
        except ConnectionError:
            return None
        if not message:
            return None
        reply: dict[str, Any] = json.loads(message)
        if fds:
            (reply["pidfd"],) = fds
        if "ended" in reply:
            self._codes[reply["ended"]] = os.waitstatus_to_exitcode(reply["status"])
        return reply


def _umask() -> int:
    """The umask of this process; asking changes it for a moment."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
