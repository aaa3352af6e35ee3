"""Metric points out of lines of text: which patterns, and what each finds in a line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from allranks.plan.plan import MetricTask
from allranks.spec.patterns import BUILTIN, KNOWN, STEP, VALUE, Known

# A line that is longer is read in pieces of so many characters.
LONGEST = 1 << 14

# Progress bars go back to the start of their line instead of beginning another.
_BREAKS = re.compile(r"[\r\n\b]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What a pattern like `([0-9.]+)` takes along of the text around the number.
_AROUND = " \t.,;:%\"'"


class Found(NamedTuple):
    """A number in a line. ``step`` is what the line says, or None. ``value`` may be NaN or
    infinite."""

    name: str
    step: int | None
    value: float


class NotANumber(ValueError):
    """What stood where the number should: ``text``."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def lines(text: str) -> list[str]:
    """The lines of ``text`` as a person sees them, without colours. The last one may be a part."""
    if "\x1b" in text:
        text = _COLOURS.sub("", text)
    return _BREAKS.split(text)


class Reader:
    """Reads one rank's lines for one metric."""

    def __init__(self, metric: MetricTask) -> None:
        self.metric = metric
        self._known: tuple[_Known, ...] = ()
        if metric.pattern == BUILTIN:
            self._known = tuple(_Known(each) for each in KNOWN[metric.name])
            return
        self._search = re.compile(metric.pattern).search
        names = re.compile(metric.pattern).groupindex
        self._value = names.get(VALUE, 1)
        left = ({1, 2} - {self._value}).pop() if self._value in (1, 2) else 0
        several = re.compile(metric.pattern).groups > 1 and VALUE not in names
        self._step = names.get(STEP, left if several else 0)

    def find(self, line: str) -> Iterator[Found]:
        """The points in a line. Raises NotANumber."""
        if self._known:
            for known in self._known:
                yield from known.find(line)
            return
        found = self._search(line)
        if found is not None and (text := found[self._value]) is not None:
            step = _whole(found[self._step]) if self._step else None
            yield Found(self.metric.name, step, number(text))


class _Known:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._line, self._pair = re.compile(known.line), re.compile(known.pair)
        self._head = re.compile(known.heads) if known.heads else None
        self._epoch: int | None = None

    def find(self, line: str) -> Iterator[Found]:
        if self._head is not None and (head := self._head.search(line)):
            self._epoch = int(head["epoch"])
        matched = self._line.search(line)
        if matched is None:
            return
        groups = {name: int(text) for name, text in matched.groupdict().items() if text}
        n, of = groups.get("n"), groups.get("of")
        if self._known.last and n != of:
            return
        step, epoch = None, groups.get("epoch", self._epoch)
        if self._known.last:
            step = epoch
        elif n is not None and of is not None and epoch is not None:
            step = epoch * of + n
        for pair in self._pair.finditer(line, matched.end() - 1 if n is not None else 0):
            name = self._known.names.get(pair[1], pair[1])
            yield Found(f"{self._known.before}{name}", step, number(pair[2]))


def number(text: str) -> float:
    """Raises NotANumber."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return float(text.strip(_AROUND))
    except ValueError:
        raise NotANumber(text) from None


def _whole(text: str | None) -> int | None:
    try:
        found = number(text) if text is not None else math.nan
    except NotANumber:
        return None
    return int(found) if math.isfinite(found) and abs(found) < 2**53 else None


def of_rank(metrics: Sequence[MetricTask], rank: int) -> list[MetricTask]:
    """Those that are looked for in what this rank prints."""
    return [each for each in metrics if each.rank in (None, rank)]
