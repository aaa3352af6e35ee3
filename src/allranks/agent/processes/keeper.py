"""The keeper: the agent's parent, there only so that nothing outlives the agent.

A child subreaper inherits every orphan below it, sessions or not. The keeper is one and forks the
agent: when the agent dies, however it dies, all that is left below is the keeper's to end. When the
keeper itself is killed, the kernel sends the agent SIGKILL, and what then belongs to init is found
by the engine (its own job control, or the marker every process of a gang carries).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time

from allranks.agent.processes.rank_processes import is_ours

# What an engine tells an agent by: the node is taken away, or its time is up.
NOTICES = (signal.SIGTERM, signal.SIGXCPU)
# Seconds.
_TIDYING = 5.0
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def keep() -> int | None:
    """Fork the agent and return None in it; in the keeper, its exit code once all is ended."""
    become_subreaper()
    # Our server ignores hang-ups, which children inherit: a job's processes have the default.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parent = os.getpid()
    agent = os.fork()
    if agent == 0:
        follow_to_death(signal.SIGKILL)
        become_subreaper()
        if os.getppid() != parent:
            os._exit(1)  # the keeper died before the line above took effect
        return None
    # An engine signals the process it started: hand it on.
    for each in NOTICES:
        signal.signal(each, lambda number, _: _send(agent, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == agent:
            break
    # A container has ended with its agent: who watched over it has a moment to take it away.
    until = time.monotonic() + _TIDYING
    while has_watchers() and time.monotonic() < until:
        time.sleep(0.02)
    end_descendants()
    return os.waitstatus_to_exitcode(status) & 0xFF


def become_subreaper() -> None:
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def follow_to_death(number: int) -> None:
    """Have the kernel send this process that signal when the thread that started it has died."""
    _prctl(_PR_SET_PDEATHSIG, number)


def end_descendants() -> None:
    """SIGKILL and reap everything below this process, until nothing is."""
    while has_children():
        for pid in below(os.getpid()):
            _send(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.wait()


def has_children() -> bool:
    """Whether any process is below this one; those that ended are reaped by the way."""
    with contextlib.suppress(ChildProcessError):
        while True:
            found = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            if found is None:
                return True
    return False


def has_others() -> bool:
    """Whether any process is below this one but those of ours that move data, read metrics or lead
    to MLflow."""
    has_children()  # one that has ended is reaped
    for pid in below(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if not is_ours(file.read()):
                return True
    return False


def has_watchers() -> bool:
    """Whether one that watches over a container of podman's is below this process. Not all of
    podman's is waited for: what holds the user's namespace stays as long as it may."""
    has_children()  # one that has ended is reaped
    for pid in below(os.getpid()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:
            if file.read() == b"conmon\n":
                return True
    return False


def below(root: int) -> list[int]:
    """Every process that descends from that one."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                # The command's name, in parentheses, may itself hold blanks and parentheses.
                after = file.read().rpartition(b")")[2].split()
                parents.setdefault(int(after[1]), []).append(int(name))
    found, look = [], [root]
    while look:
        children = parents.get(look.pop(), [])
        found += children
        look += children
    return found


def _send(pid: int, number: int) -> None:
    # Gone already, or (a setuid program) not ours to end.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
