"""The fork server: a process that has imported the agent and forks one for each request.

Imports are most of an agent's start (0.1 s). Requests come through a socket on standard input; each
reply, and each exit of a child, is one message. It ends with the engine that started it; the agents
it forked keep running.

Agents ask it, through a socket in the folder ``ALLRANKS_WARM``, to start servers that outlive them.
With ``ALLRANKS_WARM_PREFETCH`` it starts the last of those again when it starts itself.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks import file_locks, settings
from allranks.agent import __main__ as agent
from allranks.agent.programs.allranks_warm import wire
from allranks.core import packing
from allranks.core.data.working_set import Held
from allranks.core.plan import Place, Task
from allranks.settings import FORK_SERVER

# The most servers of imported modules. Each holds hundreds of megabytes, and each value of a
# variable that modules read while they are imported needs one.
_MOST = 4
# Seconds without a request after which it imports modules that only some agents need.
_IDLE = 0.2
# Of a request that is damaged, or names what is not there.
_ERRORS = (OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError)


def main() -> int:
    import encodings.idna  # noqa: F401  # lazy: sockets import it for the name of a host

    import allranks.agent.lifecycle.main  # lazy: not when this module is imported

    packing.prepare(Task, Held, Place)
    # An agent then shares their memory: its garbage collector does not write into it.
    gc.collect()
    gc.freeze()
    requests = socket.socket(fileno=os.dup(0))
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(write)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    listener = _listen(Path(os.environ["ALLRANKS_WARM"]))
    if listener is not None and settings.prefetches():
        _prefetch()
    agents = set[int]()
    others = [] if listener is None else [listener.fileno()]
    # Agents that have connected; their request comes a moment later, or never.
    callers: dict[int, socket.socket] = {}
    idle: float | None = _IDLE
    # A killed engine breaks the connection, or resets it if it had not read everything.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        while True:
            ready, _, _ = select.select([requests.fileno(), *others, *callers, read], [], [], idle)
            if not ready:
                import allranks.agent.data.transfers  # lazy: agents come first
                import allranks.agent.launch.warm_ranks  # lazy: as above
                import allranks.agent.monitoring.metrics  # lazy: as above
                import allranks.agent.monitoring.pace  # noqa: F401  # lazy: as above

                gc.freeze()
                idle = None
            if read in ready:
                os.read(read, 4096)
                _report_exits(requests, agents)
            for fd in callers.keys() & ready:
                _start_server(callers.pop(fd))
            if listener is not None and listener.fileno() in ready:
                with contextlib.suppress(OSError):  # it has gone, or there are no more descriptors
                    caller, _ = listener.accept()
                    callers[caller.fileno()] = caller
            if requests.fileno() in ready:
                message, fds, _, _ = socket.recv_fds(requests, 1 << 20, 2)
                if not message:
                    break
                ours = [requests.fileno(), *others, *callers, read, write]
                child = _fork(json.loads(message), fds, ours)
                agents.add(child)
                # Before the answer: whoever ends this gang ends all who have its lock open.
                for fd in fds:
                    os.close(fd)
                requests.send(json.dumps({"pid": child}).encode())
    return 0


def _listen(folder: Path) -> socket.socket | None:
    """The socket for agents; None on a full or read-only disk, on which they start servers of their
    own."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        return wire.listen(str(folder / "start.sock"))
    except OSError:
        return None


def _start_server(connection: socket.socket) -> None:
    """Start a server for an agent, in a session of its own, and answer with its process id."""
    with contextlib.suppress(*_ERRORS), connection:
        request = connection.recv(1 << 20)
        connection.send(json.dumps({"pid": _spawn(json.loads(request))}).encode())
        if settings.prefetches():
            _last_request().write_bytes(request)


def _prefetch() -> None:
    """Start the server that an agent asked for last, before a job needs it."""
    with contextlib.suppress(*_ERRORS):
        _spawn(json.loads(_last_request().read_bytes()))


def _last_request() -> Path:
    return Path(os.environ["ALLRANKS_WARM"], settings.LAST_WARM)


def _spawn(request: Mapping[str, Any]) -> int:
    """Start a server and return its process id. Raises one of ``_ERRORS``."""
    _end_unused(Path(os.environ["ALLRANKS_WARM"]))
    with open(request["log"], "ab") as log:
        server = subprocess.Popen(
            request["argv"],
            cwd="/",
            # Marked: see engines/local/end_gang.py.
            env={**request["env"], FORK_SERVER: "1"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_default_signals,
        )
    server.returncode = 0  # the loop reaps it
    return server.pid


def _end_unused(folder: Path) -> None:
    """Leave room for one more server: end those that no job has used for longest. Ranks that they
    forked keep running."""
    held = [lock for lock in folder.glob("*.lock") if file_locks.is_held(lock)]
    held.sort(key=lambda lock: lock.stat().st_mtime, reverse=True)
    for server in map(file_locks.holder, held[_MOST - 1 :]):
        if server is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(server, signal.SIGTERM)


def _default_signals() -> None:
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)


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
        _, log = fds
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        _change_environment(request["env"])
        # The first one, the lock, stays open until the node's last process has ended.
        os.environ["ALLRANKS_AGENT_LOCK"] = str(fds[0])
        os.chdir(request["cwd"])
        code = agent.main()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        sys.stderr.flush()
        os._exit(code)


def _change_environment(env: Mapping[str, str]) -> None:
    """Set this process's environment to ``env``. Changes what differs alone, because each change
    copies shared pages."""
    before = dict(os.environ)
    for name in before.keys() - env.keys():
        del os.environ[name]
    for name, value in env.items():
        if before.get(name) != value:
            os.environ[name] = value


def _report_exits(engine: socket.socket, agents: set[int]) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid not in agents:
            continue
        agents.discard(pid)
        engine.send(json.dumps({"ended": pid, "code": os.waitstatus_to_exitcode(status)}).encode())


if __name__ == "__main__":
    sys.exit(main())
