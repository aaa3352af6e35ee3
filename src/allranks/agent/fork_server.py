"""A process that has imported the agent and forks one whenever it is asked to.

Importing is most of what an agent's start costs (0.1 s), and on one machine it is the same each
time. Asked through a socket on its standard input; each answer and each end of a child is one
message. It ends with the engine that started it; the agents it forked do not.
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

# Seconds without a wish after which there is time for what few agents need.
_IDLE = 0.2


def main() -> int:
    import allranks.agent.lifecycle.main  # noqa: F401  # lazy: the point of this process, not of its parser

    asked = socket.socket(fileno=os.dup(0))
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    idle: float | None = _IDLE
    # An engine that is killed breaks the pipe, or resets it if it has not read everything.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            ready, _, _ = select.select([asked.fileno(), read], [], [], idle)
            if not ready:
                _learn_of_data()
                idle = None
            if read in ready:
                os.read(read, 4096)
                _tell_ends(asked)
            if asked.fileno() in ready:
                message, fds, _, _ = socket.recv_fds(asked, 1 << 20, 2)
                if not message:
                    break
                child = _fork(json.loads(message), fds, [asked.fileno(), read, write])
                asked.send(json.dumps({"pid": child}).encode())
                for fd in fds:
                    os.close(fd)
    return 0


def _learn_of_data() -> None:
    """Most of what a job costs whose data is there already is importing what opens stores. Only
    imported: it starts threads when it opens one, which would not be there in a child."""
    with contextlib.suppress(ImportError):
        pass  # lazy: as above


def _fork(wanted: dict[str, Any], fds: list[int], ours: list[int]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for fd in ours:
            os.close(fd)
        os.setpgid(0, 0)  # the session is all agents': see `ranks`
        # The lock stays open as it is: held until the last process of the node is dead.
        _, log = fds
        null = os.open(os.devnull, os.O_RDONLY)
        for source, goal in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, goal)
        os.environ.clear()
        os.environ.update(wanted["env"])
        os.chdir(wanted["cwd"])
        code = agent.main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _tell_ends(asked: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        asked.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    sys.exit(main())
