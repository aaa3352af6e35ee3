"""Reads metric points out of ranks' output: a process of its own beside the agent.

Of its own because Python's regular expressions let nothing else run while they search, and one that
nests its quantifiers may search for years: here an alarm ends it, and then the metric is dropped.
The alarm rings all the time; what a metric takes is how often it was just being searched for.

What it found it appends to a file, a line for each look: ``{"points": [[metric, rank, step, at,
value], …], "read": {rank: bytes}, …}``. The last whole line says where it was: killed at any
moment and started again, it finds every point once. It ends when its standard input does, once it
has read everything.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from allranks.plan.metrics.patterns import LONGEST, MetricPoint, NotANumber, Reader, lines, of_rank
from allranks.plan.plan import MetricTask

# Seconds of the processor's time that a metric has for one piece of one log, after which its search
# is broken off, and how often that may happen to it. Seconds from one alarm to the next.
PATIENCE = 0.5
STRIKES = 3
_TICK = 0.05
# The most names that known formats may find in what a rank prints: each look writes all of them.
NAMES = 500
# Seconds between two looks, and the most bytes of a piece.
LOOK = 0.1
PIECE = 1 << 15


class Scraper:
    """``request``: the ``metrics``, the ``logs`` by rank, and the file to write ``into``."""

    def __init__(self, request: dict[str, Any]) -> None:
        self._metrics = [MetricTask(**each) for each in request["metrics"]]
        self._logs = {int(rank): Path(path) for rank, path in request["logs"].items()}
        self._into = os.open(request["into"], os.O_RDWR | os.O_CREAT, 0o600)
        state = _resumed(self._into)
        # How far each log was read; how many points there are of each; which metrics found any; how
        # often one took too long; what stood in the place of a number.
        self._read: dict[str, int] = state.get("read", {})
        self._count: dict[str, int] = state.get("count", {})
        self._hit: dict[str, bool] = state.get("hit", {})
        self._strikes: dict[str, int] = state.get("strikes", {})
        self._odd: dict[str, str] = state.get("odd", {})
        # Which metrics found more names than are taken, and how many each rank has.
        self._many: dict[str, bool] = state.get("many", {})
        self._names = Counter(key.rpartition("/")[2] for key in self._count)
        # What readers keep of lines before, by metric and rank.
        self._memory: dict[str, dict[str, Any]] = state.get("memory", {})
        self._readers = {
            rank: [
                Reader(each, self._memory.setdefault(f"{each.name}/{rank}", {}))
                for each in of_rank(self._metrics, rank)
            ]
            for rank in self._logs
        }
        # The metric that is searched for just now, and the seconds that each took of this piece.
        self._searching = ""
        self._took: dict[str, float] = {}
        self._changed = False
        self._found: list[tuple[str, int, int, float, float]] = []

    def look(self, to_the_end: bool = False) -> int:
        """Read a piece of every log that has grown; how large the largest was. ``to_the_end``: what
        has no end of line counts, too."""
        largest = 0
        for rank, readers in self._readers.items():
            piece, at = self._piece(rank, to_the_end)
            largest = max(largest, len(piece))
            self._took = {}
            signal.setitimer(signal.ITIMER_PROF, _TICK, _TICK)
            for line in lines(piece.decode(errors="replace")):
                if line:
                    self._line(rank, readers, line[:LONGEST], at)
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._read[str(rank)] = self._read.get(str(rank), 0) + len(piece)
        if self._changed:
            self._write()
        return largest

    def end(self) -> None:
        """Say what became of every metric: the last line."""
        for rank, readers in self._readers.items():
            for reader in readers:
                for each in reader.rest():
                    self._keep(reader.metric.name, rank, each, time.time())
        names = {each.name for each in self._metrics}
        off = sorted(name for name in names if self._is_off(name))
        missed = sorted(names - set(self._hit) - set(self._strikes) - set(self._odd))
        slow = {name: count for name, count in self._strikes.items() if name not in off}
        told = {"off": off, "slow": slow, "missed": missed, "odd": self._odd}
        told |= {"many": sorted(self._many)}
        if not self._write(end={**told, "steps": self._odd_steps()}):
            print("there is no room for them on the disk", file=sys.stderr)

    def alarm(self, *_: object) -> None:
        """Count the time for who is searched for; break it off when that was too much."""
        if name := self._searching:
            self._took[name] = self._took.get(name, 0.0) + _TICK
            if self._took[name] >= PATIENCE:
                raise _Slow

    def _piece(self, rank: int, to_the_end: bool) -> tuple[bytes, float]:
        """Whole lines that were not read yet, and when they were written."""
        before = self._read.get(str(rank), 0)
        # A job may take its own output away.
        with contextlib.suppress(OSError), self._logs[rank].open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
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
                found = reader.find(line)
                self._searching = ""
            except NotANumber as error:
                self._searching = ""
                self._odd.setdefault(name, error.text[:80])
            except _Slow:
                self._searching = ""
                self._strikes[name] = self._strikes.get(name, 0) + 1
                self._took[name] = 0.0
                self._changed = True
            else:
                for each in found:
                    self._keep(name, rank, each, at)

    def _keep(self, metric: str, rank: int, found: MetricPoint, at: float) -> None:
        self._hit[metric] = True
        key = f"{found.name}/{rank}"
        count = self._count.get(key, 0)
        if not count:
            if found.name != metric and self._names[str(rank)] >= NAMES:
                self._many[metric] = True
                return
            self._names[str(rank)] += 1
        self._count[key] = count + 1
        step = count if found.step is None else found.step
        self._found.append((found.name, rank, step, at, found.value))
        self._changed = True

    def _odd_steps(self) -> dict[str, str]:
        """Of each metric what stood once where its step should be."""
        readers = [each for several in self._readers.values() for each in several]
        return {e.metric.name: e.memory["step"][:80] for e in readers if "step" in e.memory}

    def _is_off(self, name: str) -> bool:
        return self._strikes.get(name, 0) >= STRIKES

    def _write(self, **more: Any) -> bool:
        """Whether there was room for it."""
        state = {"read": self._read, "count": self._count, "hit": self._hit, "odd": self._odd}
        state |= {
            "strikes": self._strikes,
            "many": self._many,
            "memory": {key: kept for key, kept in self._memory.items() if kept},
            "points": self._found,
        }
        state |= more
        data, size = json.dumps(state).encode() + b"\n", os.lseek(self._into, 0, os.SEEK_END)
        try:
            whole = os.write(self._into, data) == len(data)
        except OSError:
            whole = False
        if whole:
            self._found, self._changed = [], False
        else:  # the disk is full: it goes with the next
            os.ftruncate(self._into, size)
        return whole


class _Slow(Exception):
    """A search has taken too long."""


def _resumed(file: int) -> dict[str, Any]:
    """What the last whole line of the file says; what is torn behind it was never written."""
    size = os.lseek(file, 0, os.SEEK_END)
    data, start = b"", size
    while start and data.count(b"\n") < 2:
        start = max(0, start - (1 << 20))
        data = os.pread(file, size - start, start)
    whole, _, torn = data.rpartition(b"\n")
    os.ftruncate(file, size - len(torn))
    found: dict[str, Any] = json.loads(whole.rpartition(b"\n")[2] or b"{}")
    return found


def main() -> int:
    os.nice(10)  # the ranks come first
    scraper = Scraper(json.loads(sys.stdin.buffer.readline()))
    signal.signal(signal.SIGPROF, scraper.alarm)
    over = False
    while not over:
        behind = scraper.look() > PIECE // 2
        over = bool(select.select([0], [], [], 0.0 if behind else LOOK)[0])
    while scraper.look(to_the_end=True):
        pass
    scraper.end()
    return 0


if __name__ == "__main__":
    sys.exit(main())
