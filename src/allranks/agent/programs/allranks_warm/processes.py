"""Children that end, descendants, and what the kernel knows of a process."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Collection, Iterator

# From <linux/prctl.h>.
SET_PDEATHSIG, SET_CHILD_SUBREAPER, _SET_MM, _SET_MM_ARG_END = 1, 36, 35, 9
LIBC = ctypes.CDLL(None, use_errno=True)
# The number of pidfd_open(2) on every architecture. Pythons built for an old libc have no
# os.pidfd_open.
_PIDFD_OPEN = 434
# A kernel built without CONFIG_PROC_CHILDREN lists no children.
_LISTS_CHILDREN = os.path.exists(f"/proc/self/task/{os.getpid()}/children")


def end_with(parent: int) -> None:
    """Have the kernel end this process with its parent, which was ``parent`` at the fork."""
    LIBC.prctl(SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


class Wakeup:
    """Becomes readable when a child has ended."""

    def __init__(self) -> None:
        self.fd, self._write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._write)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def ended(self) -> list[tuple[int, int]]:
        """The children that ended, with their wait status."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.fd, 4096)
        children: list[tuple[int, int]] = []
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return children
            if pid == 0:
                return children
            children.append((pid, status))

    def close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(self.fd)
        os.close(self._write)


def pidfd_open(pid: int) -> int:
    """A descriptor of a process, readable once it has ended. Raises OSError."""
    fd = int(LIBC.syscall(ctypes.c_long(_PIDFD_OPEN), pid, 0))
    if fd < 0:
        raise OSError(ctypes.get_errno(), "pidfd_open failed")
    return fd


def below(root: int, spared: Collection[int] = ()) -> Iterator[int]:
    """All descendants of a process, except those spared and what is below them: each before its
    own children are looked up."""
    parents = None if _LISTS_CHILDREN else _by_parent()
    look = [root]
    while look:
        parent = look.pop()
        for pid in _children(parent) if parents is None else parents.get(parent, []):
            if pid not in spared:
                yield pid
                look.append(pid)


def parent_of(pid: int) -> int:
    """The parent of a process. Raises OSError once it has ended."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        # The command's name, in parentheses, may contain blanks and parentheses.
        return int(file.read().rpartition(b")")[2].split()[1])


def _by_parent() -> dict[int, list[int]]:
    """All processes of this machine by their parent."""
    parents: dict[int, list[int]] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # it has ended
            parents.setdefault(parent_of(int(name)), []).append(int(name))
    return parents


def _children(pid: int) -> list[int]:
    """The children of a process, as its kernel lists them: each belongs to a thread."""
    children: list[int] = []
    with contextlib.suppress(OSError):  # it has ended
        for thread in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{thread}/children"
            with contextlib.suppress(OSError), open(path, "rb") as file:
                children += map(int, file.read().split())
    return children


def show_words(words: list[str]) -> None:
    """Show the rank's own command in lists of processes.

    Where this process may not move the end of its arguments, the kernel shows them as one text if
    their last byte is not zero (proc_pid_cmdline(5)).
    """
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    start = int(fields[45])
    end = int(fields[46])  # arg_start and arg_end of proc(5)
    text = b"".join(os.fsencode(word) + b"\0" for word in words)
    if len(text) >= end - start:
        return
    arg_end = ctypes.c_ulong(start + len(text))
    if LIBC.prctl(_SET_MM, _SET_MM_ARG_END, arg_end, 0, 0) == 0:
        ctypes.memmove(start, text, len(text))
    else:
        ctypes.memset(start, 1, end - start)
        title = text[:-1].replace(b"\0", b" ") + b"\0"
        ctypes.memmove(start, title, len(title))
