"""Unpack archives in parallel, each to its own folder and never outside it.

One worker process for each CPU does it rather than the system's tar, which cannot be kept from
writing outside the folder and gains nothing for small shards.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks.agent.archives import formats
from allranks.agent.archives.size_limit import disk_full, free_bytes, too_large
from allranks.core.amounts import size_text
from allranks.errors import OUT_OF_MEMORY, AllranksError, NotFound, from_body

# Longest time between two progress calls, in seconds.
_PROGRESS_SECONDS = 0.25


class Task(NamedTuple):
    """An archive to unpack. ``size``: of the archive file, in bytes."""

    archive: Path
    folder: Path
    size: int


def is_archive(name: str) -> bool:
    """Whether the name has the suffix of a supported archive."""
    return formats.suffix(name) is not None


def stem(name: str) -> str:
    """The name without its archive suffix."""
    return name[: len(name) - len(formats.suffix(name) or "")]


def unpack(
    archives: Sequence[tuple[Path, Path]],
    limit: int,
    progress: Callable[[int, int], None],
    workers: int = 0,
) -> None:
    """Unpack each archive to its folder, which is created if missing.

    ``limit``: bytes that all archives together may unpack to, counting 512 for each entry; exceeded
    by a few MiB at most. ``progress`` is called at least four times a second with the number of
    finished archives and the bytes written; it may raise to stop. ``workers``: number of processes;
    0 for one per available CPU.

    Nothing is ever written outside the folders; archives with entries or links that lead outside
    are refused. Permissions (minus umask, set-uid, set-gid and sticky bits) and times of files are
    kept; owners, devices and times of folders are not.

    Raises AllranksError, and what ``progress`` raises. All processes have ended then, and the
    caller removes the partly filled folders.
    """
    tasks = [_task(archive, folder) for archive, folder in archives]
    # The largest first, so that no large archive is left at the end.
    tasks.sort(key=lambda task: -task.size)
    with _WorkerPool(min(workers or len(os.sched_getaffinity(0)), len(tasks))) as pool:
        _check_sizes(tasks, limit, pool, lambda: progress(0, 0))
        done = taken = written = 0

        def on_message(task: Task, message: dict[str, Any]) -> None:
            nonlocal done, taken, written
            done += "done" in message
            taken += message.get("taken", 0)
            written += message.get("written", 0)
            if taken > limit:
                raise too_large(task.archive, limit)
            progress(done, written)

        def request(task: Task) -> dict[str, Any]:
            return {"folder": str(task.folder), "limit": limit, "left": limit - taken}

        pool.run(tasks, request, on_message, lambda: progress(done, written))


def _task(archive: Path, folder: Path) -> Task:
    kind = formats.kind(archive.name)
    if kind is None:
        raise formats.unknown(archive)
    if kind == "zst" and shutil.which("zstd") is None:
        raise formats.without_zstd(archive)
    try:
        status = archive.stat()
    except OSError as error:
        raise NotFound(
            f"cannot find the archive {archive.name}: {error.strerror}",
            where=str(archive),
            hint="check that this node has the disk mounted",
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise formats.unknown(archive)
    if not os.access(archive, os.R_OK):
        raise AllranksError(
            f"this node's user may not read the archive {archive.name}",
            where=str(archive),
            hint="make it readable with chmod a+r, or ask its owner to",
        )
    return Task(archive, folder, status.st_size)


def _check_sizes(
    tasks: Sequence[Task], limit: int, pool: _WorkerPool, tick: Callable[[], None]
) -> None:
    """Raise AllranksError if the sizes that zips and plain tars state exceed the limit or the disk.
    Compressed tars state no size."""
    plain = [task for task in tasks if formats.kind(task.archive.name) == "tar"]
    zips = [task for task in tasks if formats.kind(task.archive.name) == "zip"]
    # A tar without sparse files is larger than its contents, so its own size is an upper bound.
    sizes = {task: task.size for task in plain} | pool.sizes(zips, tick)
    if sum(sizes.values()) > limit:
        sizes |= pool.sizes(plain, tick)
    if (total := sum(sizes.values())) > limit:
        largest = max(sizes, key=sizes.__getitem__)
        raise AllranksError(
            f"the unpacked data takes {size_text(total)}; the limit is {size_text(limit)}",
            where=str(largest.archive),
            hint="check the archives: an archive bomb unpacks to very much data",
        )
    disks: dict[int, int] = {}
    for task, size in sizes.items():
        disk = _device(task.folder)
        disks[disk] = disks.get(disk, 0) + size
        if disks[disk] > free_bytes(task.folder):
            raise disk_full(task.archive, task.folder)


def _device(folder: Path) -> int:
    """The device number of the folder's disk; the folder need not exist yet."""
    for path in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return path.stat().st_dev
    return 0


class _Worker:
    """A worker process and its current task."""

    def __init__(self, sharing: int) -> None:
        module = ["-P", "-X", "utf8", "-m", "allranks.agent.archives.unpack_process"]
        self._process = subprocess.Popen(
            [sys.executable, *module, str(os.getpid()), str(sharing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        self._rest = b""
        self.task: Task | None = None

    def fileno(self) -> int:
        return self._answers.fileno()

    def send(self, task: Task, request: dict[str, Any]) -> None:
        self.task = task
        line = json.dumps({"archive": str(task.archive), **request}).encode() + b"\n"
        with contextlib.suppress(BrokenPipeError):  # `receive` raises the error
            self._requests.write(line)
            self._requests.flush()

    def receive(self) -> list[dict[str, Any]]:
        """Read available messages; call it when the descriptor is readable."""
        piece = os.read(self.fileno(), 65536)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if not piece:
            raise self._exit_error()
        return [json.loads(line) for line in lines]

    def kill(self) -> None:
        """Kill the process and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()
        self._answers.close()

    def _exit_error(self) -> AllranksError:
        # Do not reap it yet, so that its process id stays valid for killing its group.
        status = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert status is not None
        outcome, hint = f"exited with {status.si_status}", "see its output in the agent's log"
        if status.si_code != os.CLD_EXITED:
            outcome = f"was killed by {signal.Signals(status.si_status).name}"
            hint = OUT_OF_MEMORY
        name = self.task.archive.name if self.task else "archives"
        return AllranksError(
            f"the process unpacking {name} {outcome}",
            where=str(self.task.archive) if self.task else None,
            hint=hint,
        )


class _WorkerPool:
    """Worker processes; all are killed at exit."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[_Worker] = []
        self._answers = selectors.DefaultSelector()

    def __enter__(self) -> _WorkerPool:
        try:
            for _ in range(self._count):
                self._workers.append(_Worker(self._count))
                self._answers.register(
                    self._workers[-1].fileno(), selectors.EVENT_READ, self._workers[-1]
                )
        except OSError as error:
            self.__exit__()
            raise AllranksError(
                f"cannot start the processes that unpack archives: {error.strerror}",
                where=sys.executable,
                hint="check the node's limits on processes and memory",
            ) from error
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        for worker in self._workers:
            worker.kill()

    def sizes(self, tasks: Sequence[Task], tick: Callable[[], None]) -> dict[Task, int]:
        """The unpacked size that each archive states, in bytes."""
        sizes: dict[Task, int] = {}

        def on_message(task: Task, message: dict[str, Any]) -> None:
            sizes[task] = message["size"]

        self.run(tasks, lambda task: {"folder": None}, on_message, tick)
        return sizes

    def run(
        self,
        tasks: Sequence[Task],
        request: Callable[[Task], dict[str, Any]],
        on_message: Callable[[Task, dict[str, Any]], None],
        tick: Callable[[], None],
    ) -> None:
        """Send the ``request`` of each task to an idle worker until all are done."""
        pending = list(reversed(tasks))
        idle = list(self._workers)
        busy = 0
        while pending or busy:
            while pending and idle:
                task = pending.pop()
                idle.pop().send(task, request(task))
                busy += 1
            ready = self._answers.select(_PROGRESS_SECONDS)
            if not ready:
                tick()
            for key, _ in ready:
                worker: _Worker = key.data
                for message in worker.receive():
                    if "error" in message:
                        raise from_body(message["error"])
                    assert worker.task is not None
                    on_message(worker.task, message)
                    if "done" in message:
                        idle.append(worker)
                        busy -= 1
