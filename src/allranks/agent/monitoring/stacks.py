"""Collect the stacks of the processes of a node's ranks, with signals that every Python answers.

This cannot end a process: only processes that handle the signal get it, and its default is to be
ignored, should the process have become another program meanwhile.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.agent.monitoring.inspection import ask_all
from allranks.agent.processes import rank_messages
from allranks.agent.processes.rank_processes import families
from allranks.core.diagnosis.stacks import ANSWERED, WHOLE, Frame, Process, Thread, read, short
from allranks.core.packing import pack

# Seconds to wait for answers; seconds without growth after which an answer is complete.
PATIENCE, QUIET = 0.6, 0.03
# Seconds to wait for the stacks of all threads; a thread in C code may never answer.
_THREADS = 0.15
# Maximum number of reported processes per rank, and bytes of a source file that are read.
_MOST, _SOURCE = 64, 4 << 20
_MARK = "allranks-stacks"
# Signals for the stack, and for a sign that Python runs: see inside/sitecustomize.py.
_WHERE, _ALIVE = signal.SIGURG, signal.SIGWINCH

# Only one request at a time, because all answers of a process go to the same file.
_LOCK = threading.Lock()

# When a process (id and start time) got the first request that it has not answered yet.
_SINCE: dict[tuple[int, str], float] = {}


def take(
    node: int, roots: Mapping[int, int], busy: Mapping[int, float] | None = None
) -> list[dict[str, Any]]:
    """Return every process of every rank, as JSON. ``roots`` are the ranks' first processes,
    ``busy`` is each process's share of a CPU. Thread-safe."""
    with _LOCK:
        processes = _collect(node, roots, busy or {})
    return [pack(process) for process in processes]


def _collect(node: int, roots: Mapping[int, int], busy: Mapping[int, float]) -> list[Process]:
    trees = families(roots.values())
    if not roots:  # they run in a container
        trees, roots = inside(node)
    requests: dict[int, _Request] = {}
    for tree in trees.values():
        for pid in tree:
            with contextlib.suppress(OSError):
                if (request := _Request.of(pid)) is not None:
                    requests[pid] = request
    _wait(requests.values())
    several = (pid for tree in trees.values() for pid in tree)
    recorded = ask_all(several, {"do": "collectives"}, PATIENCE)
    processes = []
    for rank, root in roots.items():
        of_rank = []
        for pid in trees.get(root, [root]):
            with contextlib.suppress(OSError, ValueError, IndexError):
                process = _process(rank, node, pid, requests.get(pid), busy.get(pid, 0.0))
                of_rank.append(process._replace(collectives=recorded.get(pid)))
        processes += _relevant(of_rank, trees.get(root, []))
    for request in requests.values():
        os.close(request.fd)
    return processes


def held(processes: Iterable[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """The same processes, of those that wait in `inside/allranks_hold.py` with the stack of their
    failure, which they have left in ``folder``."""
    frames: dict[int, list[Frame]] = {}
    for file in folder.glob("*.json"):
        # Any process of the job may write there.
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            about = rank_messages.load(folder_trees.read_file(file))
            if not about["worker"]:
                frames[int(about["rank"])] = [
                    Frame(str(path), int(line), str(name))
                    for path, line, name in about["frames"][:_MOST]
                ]
    return [
        {
            **process,
            "frames": [
                pack(short(with_text(frame, process["pid"]))) for frame in frames[process["rank"]]
            ],
        }
        if _waits_held(process) and frames.get(process["rank"])
        else process
        for process in processes
    ]


def _waits_held(process: Mapping[str, Any]) -> bool:
    return any(frame["file"].endswith("allranks_hold.py") for frame in process["frames"][:3])


def ask_to_listen(pid: int) -> bool:
    """Have a Python start the thread that answers `inspection`, as soon as its first thread runs
    Python. Return whether it is such a Python. Thread-safe."""
    with _LOCK, contextlib.suppress(OSError):
        caught = status(pid, "SigCgt", 16)
        fd = _file(pid) if caught & 1 << (_ALIVE - 1) and state(pid) not in "TtZX" else None
        if fd is not None:
            try:
                os.ftruncate(fd, 0)
                os.write(fd, b"listen\n")
                _send(pid, _ALIVE)
            finally:
                os.close(fd)
            return True
    return False


def _file(pid: int) -> int | None:
    """Open the file into which a process writes its stacks."""
    folder = f"/proc/{pid}/fd"
    for number in os.listdir(folder):
        with contextlib.suppress(OSError):
            if _MARK in os.readlink(f"{folder}/{number}"):
                return _open_nameless(f"{folder}/{number}")
    return None


def _open_nameless(path: str) -> int:
    """Open a regular file that has no name: a process may give the mark to a device or to a file
    that it cannot write to. Raises OSError."""
    # Not opened before it was looked at, and the process may change its number in between.
    pinned = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        about = os.fstat(pinned)
        if not stat.S_ISREG(about.st_mode) or about.st_nlink:
            raise OSError(errno.EINVAL, "not a file without a name", path)
        return os.open(f"/proc/self/fd/{pinned}", os.O_RDWR | os.O_CLOEXEC)
    finally:
        os.close(pinned)


class _Request:
    """The signals sent to a process. ``fd`` is the file into which it writes its answer."""

    def __init__(self, pid: int, fd: int, caught: int) -> None:
        self.fd, self.size, self.since = fd, 0, time.monotonic()
        # Seconds since it last ran Python, measured from the first unanswered request.
        key = (pid, _started(pid))
        answered = f"{ANSWERED}\n".encode() in _content(fd)
        if answered or key not in _SINCE:
            _SINCE[key] = self.since
        self.silent = self.since - _SINCE[key]
        os.ftruncate(fd, 0)
        _send(pid, _WHERE)
        if caught & 1 << (_ALIVE - 1):
            _send(pid, _ALIVE)

    @staticmethod
    def of(pid: int) -> _Request | None:
        """Send the signals; None if the process cannot answer: not such a Python, or stopped."""
        caught = status(pid, "SigCgt", 16)
        if not caught & 1 << (_WHERE - 1) or state(pid) in "TtZX":
            return None
        fd = _file(pid)
        if fd is not None:
            try:
                return _Request(pid, fd, caught)
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
    """Signal the first thread: a signal to the process may reach any thread. Raises OSError."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "tgkill"):  # before glibc 2.30
        os.kill(pid, number)
    elif libc.tgkill(pid, pid, int(number)) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _content(fd: int) -> bytes:
    return os.pread(fd, 1 << 20, 0)


def _wait(requests: Iterable[_Request]) -> None:
    """Wait until all have answered, at most PATIENCE."""
    until = time.monotonic() + PATIENCE
    pending = list(requests)
    while pending and time.monotonic() < until:
        pending = [request for request in pending if not request.done()]
        if pending:
            time.sleep(0.005)


def _process(rank: int, node: int, pid: int, request: _Request | None, busy: float) -> Process:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")
    name = command.decode(errors="replace").strip()[:200] or f"[{_comm(pid)}]"
    now = state(pid)
    frames: tuple[Frame, ...] = ()
    threads: tuple[Thread, ...] = ()
    why = ""
    if request is not None:
        frames, threads = read(_content(request.fd).decode(errors="replace"))
    if not frames:
        frames, threads = _py_spy(pid)
    if not frames:
        why = _why_without_stack(pid, now, request is not None)
    # Only the innermost frame gets its source line, which shows the C code that is called.
    frames = tuple(map(short, (*(with_text(frame, pid) for frame in frames[:1]), *frames[1:])))
    threads = tuple(Thread(thread.name, tuple(map(short, thread.frames))) for thread in threads)
    silent = request.silent if request is not None else 0.0
    return Process(rank, node, pid, name, now, frames, threads, None, silent, busy, why)


def with_text(frame: Frame, pid: int) -> Frame:
    """Add the source line, if the process says the path of a file that it sees: in a container it
    has other files than the agent."""
    text, root = b"", f"/proc/{pid}/root/."
    with contextlib.suppress(OSError):
        is_ours = os.path.samefile(root, "/")
        path = os.path.realpath(frame.file) if is_ours else frame.file
        source = folder_trees.read_file(Path(f"{root}/{path}"), _SOURCE, root)
        text = source.split(b"\n", frame.line)[: frame.line][-1] if frame.line > 0 else b""
    return frame._replace(text=text.decode(errors="replace").strip()[:200])


def _relevant(of_rank: list[Process], tree: list[int]) -> list[Process]:
    """Processes with a stack, each with its nearest ancestor that has one, and processes without a
    stack that have no children: a shell that waits for its command is not interesting."""
    parents = {pid: status(pid, "PPid", 10) for pid in tree if _exists(pid)}
    with_stack = {process.pid for process in of_rank if process.frames}
    relevant = []
    for process in of_rank:
        above = parents.get(process.pid, 0)
        while above and above not in with_stack:
            above = parents.get(above, 0)
        if process.frames or process.pid not in parents.values():
            relevant.append(process._replace(parent=above or None))
    # A rank's own Python comes first.
    return sorted(relevant, key=lambda each: (each.parent is not None, not each.frames))[:_MOST]


def _why_without_stack(pid: int, now: str, requested: bool) -> str:
    """Why there is no stack, and the state of the process in the kernel."""
    if now in "Tt":
        return "stopped by a signal (SIGSTOP, or a debugger)"
    why = "did not answer" if requested else "not a Python process, or started with -I, -E or -S"
    where = ""
    with contextlib.suppress(OSError):
        where = Path(f"/proc/{pid}/wchan").read_text().strip("0\n")
    activity = {"R": "it runs", "D": "it waits for a disk"}.get(now, "it waits")
    return f"{why}; {activity}" + (f" in the kernel: {where}" if where else "")


def _py_spy(pid: int) -> tuple[tuple[Frame, ...], tuple[Thread, ...]]:
    """The stacks from py-spy, if it is installed and the kernel permits it."""
    program = shutil.which("py-spy") if "python" in _comm(pid) else None
    if program is None:
        return (), ()
    argv = [program, "dump", "--nonblocking", "--json", "--pid", str(pid)]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=2.0)
        dump = json.loads(done.stdout) if done.returncode == 0 else []
        several = [
            Thread(
                thread.get("thread_name") or "",
                tuple(Frame(f["filename"], f["line"], f["name"]) for f in thread["frames"]),
            )
            for thread in sorted(dump, key=lambda thread: thread.get("os_thread_id") != pid)
        ]
    except (OSError, ValueError, KeyError, TypeError, subprocess.TimeoutExpired):
        return (), ()
    return (several[0].frames, tuple(several[1:])) if several else ((), ())


# ---------------------------------------------------------------- /proc


def status(pid: int, key: str, base: int) -> int:
    """Return a number of /proc/PID/status. Raises OSError."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == key:
            return int(value.split()[0], base)
    return 0


def state(pid: int) -> str:
    """Return the state as a letter: R, S, D, T … Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0].decode()


def _started(pid: int) -> str:
    """The start time of a process, in the kernel's ticks. Raises OSError."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[19].decode()


def _exists(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}/status")


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def inside(node: int) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Find the processes of ranks in containers by their environment, because they are not our
    children. Return the trees by first process, and the first process of each rank."""
    gang = f"ALLRANKS_GANG={os.environ.get('ALLRANKS_GANG') or '?'}".encode()
    ranks: dict[int, int] = {}
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError, ValueError):
            entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            env = dict(entry.split(b"=", 1) for entry in entries if b"=" in entry)
            if gang in entries and env.get(b"ALLRANKS_NODE_RANK") == str(node).encode():
                name = env.get(b"AZUREML_PROCESS_NAME", b"").decode()
                ranks.setdefault(0 if name == "main" else int(name.removeprefix("rank_")), pid)
    return families(ranks.values()), ranks
