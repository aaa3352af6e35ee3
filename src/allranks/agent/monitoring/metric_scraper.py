"""Read metric points from the ranks' logs, in a process beside the agent.

It is a separate process because Python's `re` blocks all threads while it searches, and a pattern
with nested quantifiers may search for years. A timer signal interrupts such a search, and the
metric is dropped. The timer runs all the time; each tick counts for the metric being searched. When
the ranks have ended the agent itself reads the rest, if that is little.

After each pass it appends a line to a file: ``{"points": [[metric, rank, step, at, value], …],
"read": {rank: bytes}, …}``. The last complete line is its state: killed at any moment and started
again, it finds every point exactly once. When its standard input ends, it reads the rest and exits.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import select
import signal
import stat
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks import disk_space, folder_trees
from allranks.core.metrics.printed_metrics import (
    MetricPoint,
    NotANumber,
    Reader,
    lines,
    of_rank,
    shortened,
)
from allranks.core.plan import MetricTask

# Seconds of CPU time for a metric in one piece of a log; then its search is interrupted.
PATIENCE = 0.5
# Interruptions after which a metric is dropped.
STRIKES = 3
# Seconds between two timer signals.
_TICK = 0.05
# Maximum number of names that known formats may find per rank: each pass writes all of them.
NAMES = 500
# Seconds between two passes, and the maximum bytes of a piece.
LOOK = 0.1
PIECE = 1 << 15
# The longest state in bytes.
_STATE = 64 << 20


class Scraper:
    """``request``: the ``metrics``, the ``logs`` by rank, and the file to write ``into``."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._metrics = [MetricTask(**fields) for fields in request["metrics"]]
        self._logs = {int(rank): Path(path) for rank, path in request["logs"].items()}
        self._into = os.open(request["into"], os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            self._resume(_resumed(self._into))
        except BaseException:
            os.close(self._into)
            raise

    def _resume(self, state: dict[str, Any]) -> None:
        # Bytes read of each log, number of points of each series, metrics with a match, how often
        # each took too long, and text found in place of a number.
        self._read: dict[str, int] = state.get("read", {})
        self._count: dict[str, int] = state.get("count", {})
        self._hit: dict[str, bool] = state.get("hit", {})
        self._strikes: dict[str, int] = state.get("strikes", {})
        self._odd: dict[str, str] = state.get("odd", {})
        # Metrics with more names than NAMES, and the number of names of each rank.
        self._many: dict[str, bool] = state.get("many", {})
        self._names = Counter(key.rpartition("/")[2] for key in self._count)
        # What readers remember of earlier lines, by metric and rank.
        self._memory: dict[str, dict[str, Any]] = state.get("memory", {})
        self._readers = {
            rank: [
                Reader(metric, self._memory.setdefault(f"{metric.name}/{rank}", {}))
                for metric in of_rank(self._metrics, rank)
            ]
            for rank in self._logs
        }
        # The metric being searched, and the seconds each metric took for the current piece.
        self._searching = ""
        self._durations: dict[str, float] = {}
        self._changed = False
        self._looked = math.inf
        self._points: list[tuple[str, int, int | None, float, float]] = []

    def look(self, to_the_end: bool = False) -> int:
        """Read a piece of every log that has grown. Return the size of the largest piece.
        ``to_the_end``: also read an unfinished last line."""
        largest, now = 0, time.time()
        for rank, readers in self._readers.items():
            piece, at = self._piece(rank, to_the_end)
            largest = max(largest, len(piece))
            self._durations = {}
            signal.setitimer(signal.ITIMER_PROF, _TICK, _TICK)
            try:
                new = [line for line in lines(piece.decode(errors="replace")) if line]
                # They came one by one since the look before, the last one at ``at``.
                pause = max(0.0, at - self._looked) / max(1, len(new))
                for number, line in enumerate(new, 1):
                    moment = at - (len(new) - number) * pause
                    self._line(rank, readers, shortened(line), moment)
            finally:
                signal.setitimer(signal.ITIMER_PROF, 0)
            self._read[str(rank)] = self._read.get(str(rank), 0) + len(piece)
        self._looked = now
        if self._changed:
            self._write()
        return largest

    def unread(self) -> int:
        """Bytes of the logs that have not been read."""
        size = 0
        for rank, log in self._logs.items():
            with contextlib.suppress(OSError):  # the job removed it
                size += max(0, log.lstat().st_size - self._read.get(str(rank), 0))
        return size

    def read_rest(self, seconds: float = math.inf) -> str:
        """Read all, and write the summary. Return why it could not be written, or ''. Call it in
        the main thread, which handles signals."""
        until = time.monotonic() + seconds
        with self.interrupted():
            while self.look(to_the_end=True):
                if time.monotonic() > until:
                    return f"not all was read in {seconds:g} s"
        return "" if self._summarize() else "the disk is full"

    @contextlib.contextmanager
    def interrupted(self) -> Iterator[None]:
        """Interrupt searches that take too long meanwhile."""
        before = signal.signal(signal.SIGPROF, self._alarm)
        try:
            yield
        finally:
            signal.signal(signal.SIGPROF, before)

    def close(self) -> None:
        os.close(self._into)

    def _summarize(self) -> bool:
        """Write the summary of every metric as the last line."""
        for rank, readers in self._readers.items():
            for reader in readers:
                for point in reader.rest():
                    self._keep(reader.metric.name, rank, point, time.time())
        names = {metric.name for metric in self._metrics}
        off = sorted(name for name in names if self._is_off(name))
        missed = sorted(names - set(self._hit) - set(self._strikes) - set(self._odd))
        slow = {name: count for name, count in self._strikes.items() if name not in off}
        summary = {"off": off, "slow": slow, "missed": missed, "odd": self._odd}
        summary |= {"many": sorted(self._many)}
        return self._write(end={**summary, "steps": self._odd_steps()})

    def _alarm(self, *_: object) -> None:
        """Count the time for the metric being searched; interrupt it after PATIENCE."""
        if name := self._searching:
            self._durations[name] = self._durations.get(name, 0.0) + _TICK
            if self._durations[name] >= PATIENCE:
                raise _Slow

    def _piece(self, rank: int, to_the_end: bool) -> tuple[bytes, float]:
        """Return the next complete lines, and when they were written."""
        before = self._read.get(str(rank), 0)
        with contextlib.suppress(OSError):  # the job removed its log
            status = self._logs[rank].lstat()
            if not stat.S_ISREG(status.st_mode) or status.st_size <= before:
                return b"", 0.0  # a device or a pipe, in its place, has no end
            with folder_trees.open_file(self._logs[rank], buffering=0) as file:
                before = disk_space.after_hole(file.fileno(), before)
                self._read[str(rank)] = before
                piece = os.pread(file.fileno(), PIECE, before)
            end = max(piece.rfind(b"\n"), piece.rfind(b"\r")) + 1
            last = to_the_end and before + len(piece) >= status.st_size
            if not last and (end or len(piece) < PIECE):
                piece = piece[:end]
            return piece, status.st_mtime
        return b"", 0.0

    def _line(self, rank: int, readers: list[Reader], line: str, at: float) -> None:
        for reader in readers:
            name = reader.metric.name
            if self._strikes and self._is_off(name):
                continue
            try:
                self._searching = name
                points = reader.find(line)
                self._searching = ""
            except NotANumber as error:
                self._searching = ""
                self._odd.setdefault(name, error.text[:80])
            except _Slow:
                self._searching = ""
                self._strikes[name] = self._strikes.get(name, 0) + 1
                self._durations[name] = 0.0
                self._changed = True
            else:
                for point in points:
                    self._keep(name, rank, point, at)

    def _keep(self, metric: str, rank: int, point: MetricPoint, at: float) -> None:
        self._hit[metric] = True
        key = f"{point.name}/{rank}"
        count = self._count.get(key, 0)
        if not count:
            if point.name != metric and self._names[str(rank)] >= NAMES:
                self._many[metric] = True
                return
            self._names[str(rank)] += 1
        self._count[key] = count + 1
        self._points.append((point.name, rank, point.step, at, point.value))
        self._changed = True

    def _odd_steps(self) -> dict[str, str]:
        """Text found where the step of a metric should be."""
        readers = [reader for several in self._readers.values() for reader in several]
        return {e.metric.name: e.memory["step"][:80] for e in readers if "step" in e.memory}

    def _is_off(self, name: str) -> bool:
        return self._strikes.get(name, 0) >= STRIKES

    def _write(self, **more: Any) -> bool:
        """Append the state. Return False if the disk is full."""
        state = {"read": self._read, "count": self._count, "hit": self._hit, "odd": self._odd}
        state |= {
            "strikes": self._strikes,
            "many": self._many,
            "memory": {key: kept for key, kept in self._memory.items() if kept},
            "points": self._points,
        }
        state |= more
        data = json.dumps(state).encode() + b"\n"
        size = os.lseek(self._into, 0, os.SEEK_END)
        try:
            written = os.write(self._into, data) == len(data)
        except OSError:
            written = False
        if written:
            self._points, self._changed = [], False
        else:  # the next pass writes it
            os.ftruncate(self._into, size)
        return written


class _Slow(Exception):
    """A search took too long."""


def _resumed(file: int) -> dict[str, Any]:
    """Return the state in the last complete line; cut off what follows it. Raises OSError,
    ValueError."""
    size = os.lseek(file, 0, os.SEEK_END)
    last, torn = last_line(file)
    os.ftruncate(file, size - torn)
    state: dict[str, Any] = json.loads(last or b"{}")
    return state


def last_line(file: int) -> tuple[bytes, int]:
    """The last complete line of an open file, and how many bytes follow it. Raises OSError,
    ValueError for one that is too long: the job can write to the file, too."""
    size = os.lseek(file, 0, os.SEEK_END)
    data, start = b"", size
    while start and data.count(b"\n") < 2:
        if len(data) > _STATE:
            raise ValueError(f"{size} bytes were written into its file")
        start = max(0, start - (1 << 20))
        data = os.pread(file, size - start, start)
    complete, _, torn = data.rpartition(b"\n")
    return complete.rpartition(b"\n")[2], len(torn)


def main() -> int:
    os.nice(10)  # ranks have priority
    scraper = Scraper(json.loads(sys.stdin.buffer.readline()))
    over = False
    with scraper.interrupted():
        while not over:
            behind = scraper.look() > PIECE // 2
            over = bool(select.select([0], [], [], 0.0 if behind else LOOK)[0])
    if why := scraper.read_rest():
        print(why, file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
