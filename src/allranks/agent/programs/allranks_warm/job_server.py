"""The process that forks the ranks of one node."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from .later_imports import report_imports
from .processes import (
    LIBC,
    SET_CHILD_SUBREAPER,
    Wakeup,
    below,
    end_with,
    pidfd_open,
    show_words,
)
from .renew import renew
from .script import Script
from .wire import receive, send

if TYPE_CHECKING:
    from .server import Server

# Every Python has these before it looks into the folder of a script.
_ALWAYS_FIRST = {*sys.builtin_module_names, "abc", "codecs", "encodings", "genericpath", "io", "os"}
_ALWAYS_FIRST |= {"posixpath", "site", "sitecustomize", "stat", "_collections_abc", "__main__"}


class JobServer:
    """Forks the ranks of one node for one agent. ``serve`` returns in ranks only."""

    def __init__(self, server: Server, connection: socket.socket) -> None:
        self._server, self._connection = server, connection.dup()
        self._held: list[int] = []
        self._ranks: set[int] = set()

    def serve(self) -> Script:
        server = os.getppid()
        self._server.close()
        self._wakeup = Wakeup()
        os.setsid()
        LIBC.prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        loaded = {name.partition(".")[0] for name in sys.modules} - _ALWAYS_FIRST
        send(self._connection, {"server": server, "loaded": sorted(loaded)})
        while True:
            ready, _, _ = select.select([self._connection.fileno(), self._wakeup.fd], [], [])
            if self._wakeup.fd in ready:
                self._report()
            if self._connection.fileno() in ready:
                request, fds = receive(self._connection)
                if request is None:
                    self._end()
                elif "umask" in request:
                    self._inherit(request)
                    # The engine's lock: while it is open, something of this node lives.
                    self._held += fds
                else:
                    rank = self._start(request, fds)
                    if rank is not None:
                        return rank

    def _inherit(self, request: dict[str, Any]) -> None:
        """Take on what ranks would inherit from the agent."""
        os.umask(request["umask"])
        os.sched_setaffinity(0, request["cpus"])
        for number, limits in request["limits"]:
            with contextlib.suppress(ValueError, OSError):  # it may not be raised
                resource.setrlimit(number, tuple(limits))

    def _start(self, request: dict[str, Any], fds: list[int]) -> Script | None:
        me = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:  # too many processes, or too little memory
            for fd in fds:
                os.close(fd)
            send(self._connection, {"failed": error.strerror})
            return None
        if pid == 0:
            end_with(me)
            return self._become(request, fds)
        with contextlib.suppress(OSError):
            os.setpgid(pid, pid)  # here, too, because the agent may signal the group at once
        for fd in fds:
            os.close(fd)
        self._ranks.add(pid)
        # With a descriptor, because the rank may be gone before the agent could open one.
        pidfd = pidfd_open(pid)
        self._send({"pid": pid}, [pidfd])
        os.close(pidfd)
        return None

    def _send(self, message: dict[str, Any], fds: list[int]) -> None:
        with contextlib.suppress(OSError):  # the agent has gone: the connection says so
            send(self._connection, message, fds)

    def _report(self) -> None:
        for pid, status in self._wakeup.ended():
            if pid in self._ranks:
                self._ranks.discard(pid)
                self._send({"ended": pid, "status": status}, [])

    def _end(self) -> None:
        """SIGKILL all descendants, and exit."""
        while True:
            self._wakeup.ended()
            descendants = [*below(os.getpid())]
            if not descendants:
                os._exit(0)
            for pid in descendants:
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            select.select([self._wakeup.fd], [], [], 0.1)

    def _become(self, request: dict[str, Any], fds: list[int]) -> Script:
        """In a rank: be like a Python that was just started for this request."""
        os.setpgid(0, 0)
        self._wakeup.close()
        self._connection.close()
        (log,) = fds
        os.dup2(log, 1)
        os.dup2(log, 2)
        for fd in (log, *self._held):
            os.close(fd)
        os.chdir(request["cwd"])
        os.environ.clear()
        os.environ.update(request["env"])
        call = request["call"]
        sys.argv[:] = call["argv"]
        if hasattr(sys, "orig_argv"):  # Python 3.9 has none
            sys.orig_argv[:] = request["words"]
        for name, value in request["interpreter"].items():
            setattr(sys, name, value)
        renew()
        report_imports(f"{self._server.base}.new")
        show_words(request["words"])
        if self._server.printed:
            os.write(2, self._server.printed)
        return Script(call["kind"], call["target"])
