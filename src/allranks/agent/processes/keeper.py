"""The keeper: the agent's parent, which makes sure that nothing outlives the agent.

A child subreaper inherits all orphans below it, whatever their session. The keeper is one, and
forks the agent. When the agent dies for any reason, the keeper ends everything below. When the
keeper itself is killed, the kernel sends the agent SIGKILL, and the engine finds the remaining
processes (by its own job control, or by the marker that every process of a gang carries).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable

from allranks.agent.processes.rank_processes import is_ours
from allranks.agent.programs.allranks_warm.processes import (
    LIBC,
    SET_CHILD_SUBREAPER,
    SET_PDEATHSIG,
    below,
)

# Signals by which an engine announces a preemption or the time limit.
NOTICES = (signal.SIGTERM, signal.SIGXCPU)
# Children that stay when all other descendants are ended, with what is below them.
SPARED: set[int] = set()
# Children through which somebody has entered the job; what is below them is not of the job.
VISITORS: set[int] = set()
# Seconds. Freeing the memory of a large process may take most of the second number.
_TIDYING, _ENDING = 5.0, 60.0
# Seconds that helpers have to remove the shared memory of killed processes. torch's does so two
# seconds after the last one is gone.
_REMOVING = 5.0
_MEMORY = "/dev/shm"


def keep() -> int | None:
    """Fork the agent. Returns None in the agent, and in the keeper the exit code once everything
    has ended."""
    become_subreaper()
    # Our server ignores SIGHUP, and children inherit that. The job's processes get the default.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    parent = os.getpid()
    agent = os.fork()
    if agent == 0:
        follow_to_death(signal.SIGKILL)
        become_subreaper()
        if os.getppid() != parent:
            os._exit(1)  # the keeper died before the line above took effect
        return None
    # An engine signals the process that it started. Pass it on.
    for notice in NOTICES:
        signal.signal(notice, lambda number, _: _send(agent, number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pid, status = os.wait()
        if pid == agent:
            break
    # A container has ended with its agent. Its monitor gets a moment to remove it.
    until = time.monotonic() + _TIDYING
    while has_watchers() and time.monotonic() < until:
        time.sleep(0.02)
    if left := end_descendants():
        print(f"allranks agent: {not_ended(left)}", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # so that the engine searches for them
    return os.waitstatus_to_exitcode(status) & 0xFF


def become_subreaper() -> None:
    _prctl(SET_CHILD_SUBREAPER, 1)


def follow_to_death(number: int) -> None:
    """Have the kernel send this signal to this process when the thread that started it dies."""
    _prctl(SET_PDEATHSIG, number)


def end_descendants(seconds: float = _ENDING) -> list[int]:
    """SIGKILL and reap all descendants of this process, except those spared. Return those that
    have not ended after some time: the kernel keeps some, and we may not signal all.

    What loses its parent becomes our child. So a process that forks and exits again and again
    cannot leave, and is caught as soon as we are faster once.
    """
    until = time.monotonic() + seconds
    removed_by = time.monotonic() + min(seconds, _REMOVING)
    signalled: set[int] = set()
    while children_left():
        living = set()
        pause = 0.02  # if only such helpers are left
        for pid in below(os.getpid(), SPARED):
            if time.monotonic() > removed_by or not removes_memory(pid):
                _send(pid, signal.SIGKILL)
                pause = 0.001
            living.add(pid)
        if time.monotonic() > until:
            return sorted(living)
        if living <= signalled:
            time.sleep(pause)
        signalled = living
    return []


def kill_family(root: int) -> None:
    """SIGKILL a process and its descendants, except helpers that remove their shared memory."""
    for pid in [root, *below(root)]:
        if not removes_memory(pid):
            _send(pid, signal.SIGKILL)


def removes_memory(pid: int) -> bool:
    """Whether a process is a helper of Python (or joblib), or of torch, that removes shared memory
    once its users have ended."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
        command = file.read(4096)
        if b"torch_shm_manager" in command:
            return any(name.startswith("torch_") for name in os.listdir(_MEMORY))
        return b"resource_tracker" in command
    return False


def not_ended(pids: Iterable[int]) -> str:
    """The sentence about processes that could not be ended."""
    return f"could not end {', '.join(f'{pid} ({_name(pid)})' for pid in pids)}"


def _name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return "ended since"


def children_left() -> bool:
    """Whether this process has descendants that are not spared. Reaps those that have ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG)
            if ended is None:
                return not SPARED or any(below(os.getpid(), SPARED))
            SPARED.discard(ended.si_pid)
            VISITORS.discard(ended.si_pid)
    return False


def has_others() -> bool:
    """Whether this process has descendants other than our own helpers (data, metrics, MLflow) and
    visitors."""
    children_left()  # reaps
    for pid in below(os.getpid(), SPARED | VISITORS):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if not is_ours(file.read()):
                return True
    return False


def has_watchers() -> bool:
    """Whether a monitor of a podman container (conmon) is below this process. Other processes of
    podman may stay, for example the one that holds the user namespace."""
    if not children_left():
        return False  # without a search through all processes
    for pid in below(os.getpid(), SPARED):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/comm", "rb") as file:
            if file.read() == b"conmon\n":
                return True
    return False


def _send(pid: int, number: int) -> None:
    # Already gone, or a setuid program that we may not signal.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _prctl(option: int, value: int) -> None:
    if LIBC.prctl(option, value, 0, 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
