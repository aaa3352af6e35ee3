"""Where the processes of a node's ranks are: asked of every Python that runs, read of the rest.

Nothing that is done here can end a process: who is sent a signal has just been seen to answer it,
and who has become another program meanwhile ignores that one by default.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from allranks.agent.processes.rank_processes import families
from allranks.plan.diagnosis.stacks import ANSWERED, WHOLE, Frame, Process, Thread, read, short
from allranks.plan.plan import pack

# How long answers are waited for; how long a stack has to be as it is to be a whole one.
PATIENCE, QUIET = 0.6, 0.03
# Who answers from Python, too, has all threads to tell of; one that is in C code may never.
_THREADS = 0.15
# The most processes of one rank that are told of.
_MOST = 64
_MARK = "allranks-stacks"
# Where it is, and whether it has run Python since: inside/sitecustomize.py.
_WHERE, _ALIVE = signal.SIGURG, signal.SIGWINCH


# One that looks at a time: what a process writes is one look's.
_LOCK = threading.Lock()


# When processes (and when they were started) were first asked what they have not answered yet.
_SINCE: dict[tuple[int, str], float] = {}


def take(
    node: int, roots: Mapping[int, int], busy: Mapping[int, float] | None = None
) -> list[dict[str, Any]]:
    """Every process of every rank, as JSON. ``roots`` are the ranks' first processes, ``busy`` is
    how much of a CPU each process takes. From any thread."""
    with _LOCK:
        found = _found(node, roots, busy or {})
    return [pack(each) for each in found]


def _found(node: int, roots: Mapping[int, int], busy: Mapping[int, float]) -> list[Process]:
    trees = families(roots.values())
    if not roots:  # they run where their numbers are others
        trees, roots = inside(node)
    asked: dict[int, _Asked] = {}
    for tree in trees.values():
        for pid in tree:
            with contextlib.suppress(OSError):
                if (one := _Asked.of(pid)) is not None:
                    asked[pid] = one
    _wait(asked.values())
    found = []
    for rank, root in roots.items():
        of_rank = []
        for pid in trees.get(root, [root]):
            with contextlib.suppress(OSError, ValueError, IndexError):
                of_rank.append(_process(rank, node, pid, asked.get(pid), busy.get(pid, 0.0)))
        found += _told(of_rank, trees.get(root, []))
    for one in asked.values():
        os.close(one.fd)
    return found


class _Asked:
    """A process that has been sent the signals. ``fd`` is the file that it writes into."""

    def __init__(self, pid: int, fd: int, caught: int) -> None:
        self.fd, self.size, self.since = fd, 0, time.monotonic()
        # Since when it has not run Python, as far as that was asked.
        key, answered = (pid, _started(pid)), f"{ANSWERED}\n".encode() in _content(fd)
        if answered or key not in _SINCE:
            _SINCE[key] = self.since
        self.silent = self.since - _SINCE[key]
        os.ftruncate(fd, 0)
        _send(pid, _WHERE)
        if caught & 1 << (_ALIVE - 1):
            _send(pid, _ALIVE)

    @staticmethod
    def of(pid: int) -> _Asked | None:
        """None for one that would not answer: no Python of ours, or stopped."""
        caught = status(pid, "SigCgt", 16)
        if not caught & 1 << (_WHERE - 1) or state(pid) in "TtZX":
            return None
        folder = f"/proc/{pid}/fd"
        for number in os.listdir(folder):
            with contextlib.suppress(OSError):
                if _MARK in os.readlink(f"{folder}/{number}"):
                    fd = os.open(f"{folder}/{number}", os.O_RDWR | os.O_CLOEXEC)
                    try:
                        return _Asked(pid, fd, caught)
                    except OSError:
                        os.close(fd)
        return None

    def done(self) -> bool:
        text = _content(self.fd)
        now = time.monotonic()
        if len(text) != self.size:
            self.size, self.since = len(text), now
        if text.endswith(f"{WHOLE}\n".encode()):
            return True
        patience = QUIET if f"{ANSWERED}\n".encode() in text else _THREADS
        return bool(text) and now - self.since > patience


def _send(pid: int, number: signal.Signals) -> None:
    """To the first thread: of a process's signals any thread may be given one. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):  # before glibc 2.30
        os.kill(pid, number)
    elif libc.tgkill(pid, pid, int(number)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _content(fd: int) -> bytes:
    return os.pread(fd, 1 << 20, 0)


def _wait(asked: Iterable[_Asked]) -> None:
    """Until all have said what they have to say, or have had their time."""
    until, left = time.monotonic() + PATIENCE, list(asked)
    while left and time.monotonic() < until:
        left = [each for each in left if not each.done()]
        if left:
            time.sleep(0.005)


def _process(rank: int, node: int, pid: int, asked: _Asked | None, busy: float) -> Process:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    name = words.decode(errors="replace").strip()[:200] or f"[{_comm(pid)}]"
    now = state(pid)
    frames: tuple[Frame, ...] = ()
    threads: tuple[Thread, ...] = ()
    why = ""
    if asked is not None:
        frames, threads = read(_content(asked.fd).decode(errors="replace"))
    if not frames:
        frames, threads = _py_spy(pid)
    if not frames:
        why = _without(pid, now, asked is not None)
    # The line of source of the innermost alone: it tells what C code is called.
    frames = tuple(map(short, (*map(_with_text, frames[:1]), *frames[1:])))
    threads = tuple(Thread(each.name, tuple(map(short, each.frames))) for each in threads)
    silent = asked.silent if asked is not None else 0.0
    return Process(rank, node, pid, name, now, frames, threads, None, silent, busy, why)


def _with_text(frame: Frame) -> Frame:
    """With the line of source, of a file that is there."""
    text = b""
    with contextlib.suppress(OSError, ValueError), open(frame.file, "rb") as file:
        text = next(islice(file, frame.line - 1, None), b"")
    return frame._replace(text=text.decode(errors="replace").strip()[:200])


def _told(of_rank: list[Process], tree: list[int]) -> list[Process]:
    """Those with a stack, each below the nearest of them; and of what has none, who has no child:
    a shell that waits for its command says nothing."""
    parents = {pid: status(pid, "PPid", 10) for pid in tree if _exists(pid)}
    known = {each.pid for each in of_rank if each.frames}
    found = []
    for each in of_rank:
        above = parents.get(each.pid, 0)
        while above and above not in known:
            above = parents.get(above, 0)
        if each.frames or each.pid not in parents.values():
            found.append(each._replace(parent=above or None))
    # A rank's own Python comes first, whatever else there is.
    return sorted(found, key=lambda each: (each.parent is not None, not each.frames))[:_MOST]


def _without(pid: int, now: str, asked: bool) -> str:
    """Why there is no stack, and what the kernel knows instead."""
    if now in "Tt":
        return "stopped by a signal (SIGSTOP, or a debugger)"
    said = "did not answer" if asked else "not a Python process, or started with -I, -E or -S"
    where = ""
    with contextlib.suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    how = {"R": "it runs", "D": "it waits for a disk"}.get(now, "it waits")
    return f"{said}; {how}" + (f" in the kernel: {where}" if where else "")


def _py_spy(pid: int) -> tuple[tuple[Frame, ...], tuple[Thread, ...]]:
    """What py-spy sees, where it is there and the kernel lets it."""
    program = shutil.which("py-spy") if "python" in _comm(pid) else None
    if program is None:
        return (), ()
    argv = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=2.0)
        told = json.loads(done.stdout) if done.returncode == 0 else []
        several = [
            Thread(
                each.get("thread_name") or "",
                tuple(Frame(f["filename"], f["line"], f["name"]) for f in each["frames"]),
            )
            for each in sorted(told, key=lambda each: each.get("os_thread_id") != pid)
        ]
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return (), ()
    return (several[0].frames, tuple(several[1:])) if several else ((), ())


# ---------------------------------------------------------------- /proc


def status(pid: int, key: str, base: int) -> int:
    """A number of /proc/PID/status. Raises OSError."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0], base)
    return 0


def state(pid: int) -> str:
    """R, S, D, T … Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0].decode()


def _started(pid: int) -> str:
    """When the process of that number began. Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/status")


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def inside(node: int) -> tuple[dict[int, list[int]], dict[int, int]]:
    """The processes of ranks that run in containers, which are nobody's children here, by what
    their environment says: trees by first process, and the first process of each rank."""
    gang = f"ALLRANKS_GANG={os.environ.get('ALLRANKS_GANG') or '?'}".encode()
    ranks: dict[int, int] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError, ValueError):
            told = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            said = dict(each.split(b"=", 1) for each in told if b"=" in each)
            if gang in told and said.get(b"ALLRANKS_NODE_RANK") == str(node).encode():
                name = said.get(b"AZUREML_PROCESS_NAME", b"").decode()
                ranks.setdefault(0 if name == "main" else int(name.removeprefix("rank_")), pid)
    return families(ranks.values()), ranks
