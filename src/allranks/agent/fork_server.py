"""The nursery: a process that has imported the agent and forks one for each request.

Imports are most of an agent's start (0.1 s). Requests come through a socket on standard input; each
reply, and each exit of a child, is one message. It ends with the engine that started it; the agents
it forked keep running.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any

from allranks.agent import __main__ as agent

# Seconds without a request after which it imports modules that only some agents need.
_IDLE = 0.2


def main() -> int:
    import encodings.idna  # noqa: F401  # lazy: sockets import it for the name of a host

    import allranks.agent.lifecycle.main  # lazy: not when this module is imported

    requests = socket.socket(fileno=os.dup(0))
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    idle: float | None = _IDLE
    # A killed engine breaks the connection, or resets it if it had not read everything.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            ready, _, _ = select.select([requests.fileno(), read], [], [], idle)
            if not ready:
                import allranks.agent.data.transfers  # noqa: F401  # lazy: agents come first

                idle = None
            if read in ready:
                os.read(read, 4096)
                _report_exits(requests)
            if requests.fileno() in ready:
                message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 2)
                if not message:
                    break
                child = _fork(json.loads(message), fds, [requests.fileno(), read, write])
                requests.send(json.dumps({"pid": child}).encode())
                for fd in fds:
                    os.close(fd)
    return 0


def _fork(request: dict[str, Any], fds: list[int], ours: list[int]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in ours:
            os.close(fd)
        os.setpgid(0, 0)  # all agents share one session: see agent/processes/ranks.py
        # fds[0], the lock, stays open: the node's last process releases it.
        _, log = fds
        null = os.open(os.devnull, os.O_RDONLY)
        for source, goal in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, goal)
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        code = agent.main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _report_exits(engine: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        engine.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    sys.exit(main())
