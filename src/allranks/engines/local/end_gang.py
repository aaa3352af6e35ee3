"""Kill every process of a gang, wherever it is in the process tree.

A rank may start children in other sessions, and its agent and keeper may be killed at the same
time. Orphans then belong to init, and only their environment identifies them. An agent forked by
the fork server shows its environment; it is identified by the gang's lock file it holds.

As long as a keeper lives, all orphans below are its children, and it ends them faster than a search
of all processes can: so keepers are killed last.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from allranks.engines.base import MARKER
from allranks.settings import FORK_SERVER

# A process may fork and exit while others are looked at: this many searches that find none, with
# pauses of these seconds, show that none is left.
_SEARCHES, _PAUSE = 3, 0.005


def marked(mark: str, folder: Path) -> list[int]:
    """Return the living processes that carry ``mark`` or hold a lock in ``folder``."""
    return list(_Search(mark, folder).run())


def end_gang(mark: str, folder: Path, seconds: float = 5.0) -> list[str]:
    """Send SIGKILL until no process is left. Return those that could not be ended in this time, by
    number and name."""
    started = time.monotonic()
    search, without = _Search(mark, folder), 0
    keepers = _keepers(search.run(), folder)
    # First parents, which would report the death of their children in a rank's log; later those
    # that were forked meanwhile.
    newest_first = False
    while without < _SEARCHES:
        passed = time.monotonic() - started
        if passed > seconds / 2:
            keepers = set()
        living = []
        for pid in search.run(newest_first):
            living.append(pid)
            if pid not in keepers:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        newest_first = True
        if passed > seconds:
            return [f"{pid} ({_name(pid)})" for pid in living]
        if living:
            without = 0
        elif not search.missed:
            without += 1
        if keepers.issuperset(living):
            time.sleep(_PAUSE)
    return []


class _Search:
    """Searches all processes of this machine, again and again. Reads the environment of others
    only once: so a process that lives for some milliseconds is seen."""

    def __init__(self, mark: str, folder: Path) -> None:
        self._entry = f"{MARKER}={mark}".encode()
        self._forked = f"{FORK_SERVER}=1".encode()
        self._folder = folder
        self._others = {str(os.getpid())}
        # Whether a process of the last search ended before it was looked at.
        self.missed = False

    def run(self, newest_first: bool = True) -> Iterator[int]:
        """The processes of the gang, each as soon as it is found."""
        self.missed = False
        names = set(filter(str.isdigit, os.listdir("/proc")))
        self._others &= names
        for name in sorted(names - self._others, key=int, reverse=newest_first):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    environ = file.read().split(b"\0")
                # None during an exec, and of zombies.
                if self._entry in environ or (
                    self._forked in environ and _holds(name, self._folder)
                ):
                    yield int(name)
                elif any(environ):
                    self._others.add(name)
            except FileNotFoundError:
                self.missed = True
            except PermissionError:
                self._others.add(name)  # another user's
            except OSError:
                pass  # a zombie, or a thread of the kernel


def _keepers(pids: Iterator[int], folder: Path) -> set[int]:
    """Those that hold a lock, but for those that got it from their parent."""
    holders = {pid for pid in pids if _holds(str(pid), folder, ".lock")}
    return {pid for pid in holders if _parent(pid) not in holders}


def _parent(pid: int) -> int:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        # The command's name, in parentheses, may contain blanks and parentheses.
        return int(file.read().rpartition(b")")[2].split()[1])
    return 0


def _name(pid: int) -> str:
    with contextlib.suppress(OSError), open(f"/proc/{pid}/comm") as file:
        return file.read().strip()
    return "ended since"


def _holds(pid: str, folder: Path, suffix: str = "") -> bool:
    prefix = f"{os.path.realpath(folder)}/"
    with contextlib.suppress(OSError):  # it has ended
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                path = os.readlink(f"/proc/{pid}/fd/{fd}")
                if path.startswith(prefix) and path.endswith(suffix):
                    return True
    return False
