"""Join equal lines of many ranks: `ranks 1–511 | epoch 1`."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator

# The number of lines above which they should not be held.
_MOST = 1_000_000


class FoldedLines:
    """Holds the lines of ``ranks`` ranks until the others can have printed them as well.

    Each rank's lines stay in their order. Lines that only some ranks print do not keep the ones
    after them from being joined.
    """

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        # The held lines of each rank, with their times.
        self._lines: dict[int, deque[tuple[float, bytes]]] = {}
        # How often each rank holds a line; and since when it is the next one of which ranks.
        self._held: dict[bytes, Counter[int]] = {}
        self._next: dict[bytes, dict[int, float]] = {}
        self._count = 0

    @property
    def is_full(self) -> bool:
        """Whether lines should be released, whatever their age."""
        return self._count > _MOST

    def put(self, rank: int, lines: Iterable[bytes], time: float) -> None:
        """Hold more lines of a rank, without their line ends."""
        own = self._lines.setdefault(rank, deque())
        for line in lines:
            if not own:
                self._next.setdefault(line, {})[rank] = time
            own.append((time, line))
            self._held.setdefault(line, Counter())[rank] += 1
            self._count += 1

    def take(self, until: float) -> Iterator[tuple[list[int], bytes]]:
        """Release lines that were put before ``until``, and those that all ranks have, with the
        ranks that printed them."""
        while (line := self._first(until)) is not None:
            ranks = sorted(self._next.pop(line))
            for rank in ranks:
                self._advance(rank)
            yield ranks, line

    def _first(self, until: float) -> bytes | None:
        """The line to release next: better one that no rank prints only later."""
        crossing = None
        for line, ranks in self._next.items():
            if len(ranks) == self._ranks:
                return line
            if min(ranks.values()) >= until:
                continue
            if len(ranks) == len(self._held[line]):
                return line
            crossing = crossing or line
        return crossing

    def _advance(self, rank: int) -> None:
        own = self._lines[rank]
        _, line = own.popleft()
        self._count -= 1
        held = self._held[line]
        held[rank] -= 1
        if not held[rank]:
            del held[rank]
        if not held:
            del self._held[line]
        if own:
            time, line = own[0]
            self._next.setdefault(line, {})[rank] = time
