"""Files that grow and are sent piece by piece: the logs of ranks, and points."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from allranks import disk_space, folder_trees

# Maximum bytes of a log in one request.
PIECE = 1 << 20
# Maximum bytes of a line of points.
_LONGEST = 16 << 20
# Batches of points are a share of the attempt's age apart, at most this many seconds; those of the
# nodes of a gang, which start together, up to a part less, so that they do not come together.
BATCH, _SHARE, _SPREAD = 10.0, 1 / 3, 0.3


def batch_pause(age: float, node: int) -> float:
    """Seconds between two batches of points of a node, in an attempt of that age."""
    # The golden ratio spreads any number of nodes evenly.
    return min(age * _SHARE, BATCH) * (1 - _SPREAD * (node * 0.618034 % 1))


def read_lines(file: BinaryIO, offset: int) -> tuple[int, bytes]:
    """Where the next complete lines begin, and about a megabyte of them, or none. What cannot be
    lines is passed over: holes, and 16 MB without a line end."""
    while True:
        offset = file.seek(disk_space.after_hole(file.fileno(), offset))
        lines = bytearray()
        while piece := file.read(PIECE):
            lines += piece
            if b"\n" in piece:
                return offset, bytes(lines[: lines.rfind(b"\n") + 1])
            end = offset + len(lines)
            if len(lines) >= _LONGEST or disk_space.after_hole(file.fileno(), end) > end:
                break
        else:
            return offset, b""
        offset = end


class Tail:
    """A rank's log, and how many bytes of it the server has. If it is ``bounded``, what was sent
    does not stay here, too."""

    def __init__(self, attempt: int, rank: int, path: Path, *, bounded: bool = False) -> None:
        self.attempt, self.rank, self.path = attempt, rank, path
        self._bounded, self._freed = bounded, 0
        self.sent = 0
        # Holes, as (bytes sent before it, bytes of all up to it).
        self._holes: list[tuple[int, int]] = []
        # When it was written to last, in time.time() of this machine.
        self.written = 0.0
        # Whether ``sent`` is confirmed: a restarted server may have a restored, older record.
        self.sure = True
        # When an unfinished line or the next batch of points may be sent, in time.monotonic().
        self.due = 0.0

    def rest(self) -> bytes:
        """The next bytes to send; none if the job removed the file."""
        try:
            status, sent = os.lstat(self.path), self.sent
            at = self._position(sent)
            if status.st_size <= at:
                return b""  # most often, and cheaper than to open it
            self.written = status.st_mtime
            with folder_trees.open_file(self.path, buffering=0) as file:
                begins, piece = self._read(file, at)
            if begins > at:
                self._holes = [*self._holes, (sent, begins - sent)]
            return piece
        except OSError:
            return b""

    def free_sent(self) -> None:
        """Free the space of what the server has, but for the last lines, if it is bounded."""
        end = self._position(self.sent) - PIECE
        if self._bounded and end - self._freed > PIECE:
            with contextlib.suppress(OSError), folder_trees.open_file(self.path, "r+b") as file:
                disk_space.free_start(file.fileno(), end)
                self._freed = end

    def age(self) -> int:
        """Milliseconds since the last of ``rest`` was printed."""
        return max(0, round(1000 * (time.time() - self.written)))

    def _position(self, sent: int) -> int:
        """Where the file goes on behind what was sent."""
        if self._holes and self._holes[-1][0] > sent:  # the server has an older record
            self._holes = [hole for hole in self._holes if hole[0] <= sent]
        return sent + (self._holes[-1][1] if self._holes else 0)

    def _read(self, file: BinaryIO, at: int) -> tuple[int, bytes]:
        """The next piece, and where it begins."""
        at = disk_space.after_hole(file.fileno(), at)
        return at, os.pread(file.fileno(), PIECE, at)


class Feed(Tail):
    """A file of points, one line per time, sent in whole lines. ``batched``: in batches, unless
    somebody looks at them."""

    def __init__(
        self,
        attempt: int,
        name: str,
        path: Path,
        *,
        batched: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(attempt, 0, path)
        self.name, self.batched, self._clock = name, batched, clock
        self._began = clock()
        # The server's message if it refuses the points.
        self.refused = ""

    def sent_batch(self, node: int) -> None:
        """Wait with the next batch."""
        now = self._clock()
        self.due = now + batch_pause(now - self._began, node) if self.batched else 0.0

    def waits(self) -> bool:
        """Whether it is too early for the next batch."""
        return self._clock() < self.due

    def _read(self, file: BinaryIO, at: int) -> tuple[int, bytes]:
        return read_lines(file, at)
