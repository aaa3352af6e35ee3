"""Unpacking data archives on a node: several at a time, each into its folder and nowhere else.

Processes of our own do it, one for each CPU, and not the node's tar: what that has written outside
can only be found afterwards, and for small shards its starts take about as much as it saves.
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
from types import TracebackType
from typing import Any, NamedTuple

from allranks.agent.archives import formats
from allranks.agent.archives.size_limit import full, room, said, too_large
from allranks.errors import AllranksError, NotFound, from_body

# Seconds between two calls of who wants to know how far it is, at most.
_TICK = 0.25


class Task(NamedTuple):
    """``size``: of the archive as it lies there."""

    archive: Path
    folder: Path
    size: int


def is_archive(name: str) -> bool:
    """Whether a file of that name would be unpacked."""
    return formats.suffix(name) is not None


def stem(name: str) -> str:
    """The name without what says that it is an archive."""
    return name[: len(name) - len(formats.suffix(name) or "")]


def unpack(
    archives: Sequence[tuple[Path, Path]],
    limit: int,
    progress: Callable[[int, int], None],
    workers: int = 0,
) -> None:
    """Unpack each archive into its folder, which is made if it is not there.

    ``limit``: the bytes that all of them together may take unpacked, each entry's 512 beside its
    contents; it is passed by some MiB at most. ``progress`` is called with the archives that are
    done and the bytes written so far, four times a second or more, and may raise to stop it all.
    ``workers`` processes do it; 0: one for each CPU that is ours.

    Nothing is written outside the folders, ever. Permissions and times of files are kept, but for
    set-uid, set-gid and sticky bits and for what the umask takes; owners, devices and the times of
    folders are not. An archive that would write or lead elsewhere is refused.

    Raises AllranksError, and what ``progress`` raises. No process is left then, and what is in the
    folders is a part of it: the caller takes them away.
    """
    tasks = [_task(archive, folder) for archive, folder in archives]
    # The largest first, so that none is left to a single process in the end.
    tasks.sort(key=lambda task: -task.size)
    with _Crew(min(workers or len(os.sched_getaffinity(0)), len(tasks))) as crew:
        _foresee(tasks, limit, crew, lambda: progress(0, 0))
        done = taken = written = 0

        def heard(task: Task, told: dict[str, Any]) -> None:
            nonlocal done, taken, written
            done += "done" in told
            taken += told.get("taken", 0)
            written += told.get("written", 0)
            if taken > limit:
                raise too_large(task.archive, limit)
            progress(done, written)

        def ask(task: Task) -> dict[str, Any]:
            return {"folder": str(task.folder), "limit": limit, "left": limit - taken}

        crew.do(tasks, ask, heard, lambda: progress(done, written))


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
            f"the archive {archive.name} is not there: {error.strerror}",
            where=str(archive),
            hint="does this node see the disk that it lies on?",
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise formats.unknown(archive)
    if not os.access(archive, os.R_OK):
        raise AllranksError(
            f"the archive {archive.name} cannot be read by this node's user",
            where=str(archive),
            hint="chmod a+r it, or ask who owns it",
        )
    return Task(archive, folder, status.st_size)


def _foresee(tasks: Sequence[Task], limit: int, crew: _Crew, tick: Callable[[], None]) -> None:
    """Refuse at once what is known to be too much. Compressed tars do not say what they hold."""
    plain = [task for task in tasks if formats.kind(task.archive.name) == "tar"]
    zips = [task for task in tasks if formats.kind(task.archive.name) == "zip"]
    # A tar is larger than what it holds, if it has no holes: most need not be asked.
    sizes = {task: task.size for task in plain} | crew.sizes(zips, tick)
    if sum(sizes.values()) > limit:
        sizes |= crew.sizes(plain, tick)
    if (total := sum(sizes.values())) > limit:
        largest = max(sizes, key=sizes.__getitem__)
        raise AllranksError(
            f"unpacked, it takes {said(total)}, more than the {said(limit)} that are allowed",
            where=str(largest.archive),
            hint="allow more if that is meant; a few bytes that become very many are a trap",
        )
    disks: dict[int, int] = {}
    for task, size in sizes.items():
        disk = _disk(task.folder)
        disks[disk] = disks.get(disk, 0) + size
        if disks[disk] > room(task.folder):
            raise full(task.archive, task.folder)


def _disk(folder: Path) -> int:
    """What tells its disk from others, also before the folder is there."""
    for each in (folder, *folder.parents):
        with contextlib.suppress(OSError):
            return each.stat().st_dev
    return 0


class _Worker:
    """One process, and what it is at."""

    def __init__(self, sharing: int) -> None:
        words = ["-P", "-X", "utf8", "-m", "allranks.agent.archives.unpack_process"]
        self._process = subprocess.Popen(
            [sys.executable, *words, str(os.getpid()), str(sharing)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._asks, self._answers = self._process.stdin, self._process.stdout
        self._rest = b""
        self.task: Task | None = None

    def fileno(self) -> int:
        return self._answers.fileno()

    def ask(self, task: Task, words: dict[str, Any]) -> None:
        self.task = task
        with contextlib.suppress(BrokenPipeError):  # `hear` finds out why
            self._asks.write(json.dumps({"archive": str(task.archive), **words}).encode() + b"\n")
            self._asks.flush()

    def hear(self) -> list[dict[str, Any]]:
        """What it said; call it when there is something to be read."""
        piece = os.read(self.fileno(), 65536)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if not piece:
            raise self._ended()
        return [json.loads(line) for line in lines]

    def end(self) -> None:
        """It, and what it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._asks.close()
        self._answers.close()

    def _ended(self) -> AllranksError:
        # Not reaped yet: until then its number, by which `end` knows it, is nobody else's.
        how = os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        assert how is not None
        words, hint = f"exited with {how.si_status}", "its last words are in the agent's log"
        if how.si_code != os.CLD_EXITED:
            words = f"was ended by {signal.Signals(how.si_status).name}"
            hint = "the node may have been out of memory: `dmesg` there tells"
        name = self.task.archive.name if self.task else "archives"
        return AllranksError(
            f"the process that unpacked {name} {words}",
            where=str(self.task.archive) if self.task else None,
            hint=hint,
        )


class _Crew:
    """Several processes that unpack. None is left when it is over, however that comes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[_Worker] = []
        self._answers = selectors.DefaultSelector()

    def __enter__(self) -> _Crew:
        try:
            for _ in range(self._count):
                self._workers.append(_Worker(self._count))
                self._answers.register(
                    self._workers[-1].fileno(), selectors.EVENT_READ, self._workers[-1]
                )
        except OSError as error:
            self.__exit__(None, None, None)
            raise AllranksError(
                f"the processes that unpack cannot be started: {error.strerror}",
                where=sys.executable,
                hint="has the node room for more processes?",
            ) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._answers.close()
        for each in self._workers:
            each.end()

    def sizes(self, tasks: Sequence[Task], tick: Callable[[], None]) -> dict[Task, int]:
        """What each says to hold."""
        found: dict[Task, int] = {}

        def heard(task: Task, told: dict[str, Any]) -> None:
            found[task] = told["size"]

        self.do(tasks, lambda task: {"folder": None}, heard, tick)
        return found

    def do(
        self,
        tasks: Sequence[Task],
        ask: Callable[[Task], dict[str, Any]],
        heard: Callable[[Task, dict[str, Any]], None],
        tick: Callable[[], None],
    ) -> None:
        """Have every task done by whoever is free, with the words that ``ask`` gives for it."""
        left, idle, busy = list(reversed(tasks)), list(self._workers), 0
        while left or busy:
            while left and idle:
                task = left.pop()
                idle.pop().ask(task, ask(task))
                busy += 1
            ready = self._answers.select(_TICK)
            if not ready:
                tick()
            for key, _ in ready:
                worker: _Worker = key.data
                for told in worker.hear():
                    if "error" in told:
                        raise from_body(told["error"])
                    assert worker.task is not None
                    heard(worker.task, told)
                    if "done" in told:
                        idle.append(worker)
                        busy -= 1
