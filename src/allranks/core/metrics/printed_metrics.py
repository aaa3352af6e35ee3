"""Metric points out of lines of text: which patterns, and what each finds in a line."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from allranks.core.plan import MetricTask
from allranks.spec.fields.metric_formats import BUILTIN, KNOWN, STEP, VALUE, Known

# Of a longer line only so many characters are looked at.
LONGEST = 1 << 14

# Progress bars go back to the start of their line instead of beginning another.
_BREAKS = re.compile(r"[\r\n\b]+")
_COLOURS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# What a pattern like `([0-9.]+)` takes along of the text around the number.
_AROUND = " \t.,;:%\"'"


class MetricPoint(NamedTuple):
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


def shortened(line: str) -> str:
    """What is looked at of a line: a long one ends before the word in which it is cut, because half
    of a number is another number."""
    if len(line) <= LONGEST:
        return line
    head = line[:LONGEST]
    return head[: 1 + max(map(head.rfind, " \t,;"))] or head


class Reader:
    """Reads one rank's lines for one metric. ``memory`` is what it keeps of the lines before: plain
    JSON, for who goes on from there."""

    def __init__(self, metric: MetricTask, memory: dict[str, Any] | None = None) -> None:
        self.metric = metric
        self.memory: dict[str, Any] = {} if memory is None else memory
        self._known: tuple[_Known, ...] = ()
        if metric.pattern == BUILTIN:
            self._known = tuple(_Known(pattern, self.memory) for pattern in KNOWN[metric.name])
            return
        compiled = re.compile(metric.pattern)
        self._search = compiled.search
        self._value = compiled.groupindex.get(VALUE, 1)
        second = 2 if compiled.groups == 2 and VALUE not in compiled.groupindex else 0
        self._step = compiled.groupindex.get(STEP, second)

    def find(self, line: str) -> Sequence[MetricPoint]:
        """The points in a line. Raises NotANumber."""
        if self._known:
            return [point for pattern in self._known for point in pattern.find(line)]
        matched = self._search(line)
        if matched is None or (text := matched[self._value]) is None:
            return ()
        step_text = matched[self._step] if self._step else None
        step = None if step_text is None else _whole(step_text)
        if step_text is not None and step is None:
            self.memory.setdefault("step", step_text)
        return (MetricPoint(self.metric.name, step, number(text)),)

    def rest(self) -> Iterator[MetricPoint]:
        """What was held back for a line that has not come."""
        for name, (step, value) in self.memory.pop("held", {}).items():
            yield MetricPoint(name, step, value)


class _Known:
    def __init__(self, pattern: Known, memory: dict[str, Any]) -> None:
        self._known, self._memory = pattern, memory
        self._line = re.compile(pattern.line)
        self._pair = re.compile(pattern.pair)
        self._head = re.compile(pattern.heads) if pattern.heads else None

    def find(self, line: str) -> Iterator[MetricPoint]:
        if self._head is not None and (head := self._head.search(line)):
            self._memory["epoch"] = _whole(head["epoch"])
        matched = self._line.search(line)
        if matched is None:
            return
        groups = {name: _whole(text) for name, text in matched.groupdict().items() if text}
        n = groups.get("n")
        of = groups.get("of")
        if (self._known.last and n != of) or (self._known.redrawn and n == 0):
            return  # not the last; or begun anew, still with the values of before
        step, epoch = None, groups.get("epoch", self._memory.get("epoch"))
        if self._known.last:
            step = epoch
        elif n is not None and of is not None and epoch is not None:
            step = _bounded(epoch * of + n)
        for pair in self._pair.finditer(line, matched.end() - 1 if n is not None else 0):
            name = self._known.before + self._known.names.get(pair[1], pair[1])
            point = MetricPoint(name, step, number(pair[2]))
            if step is None or not self._known.redrawn:
                yield point
            else:
                yield from self._held(point, step)

    def _held(self, point: MetricPoint, step: int) -> Iterator[MetricPoint]:
        """Hold it back until another step is shown: it may be shown again, and better."""
        held = self._memory.setdefault("held", {})
        before = held.get(point.name)
        held[point.name] = [step, point.value]
        if before is not None and before[0] != step:
            yield MetricPoint(point.name, *before)


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


def _whole(text: str) -> int | None:
    """The number, if it is a whole one that a double holds."""
    try:
        value = number(text)
    except NotANumber:
        return None
    return _bounded(int(value)) if math.isfinite(value) and value == int(value) else None


def _bounded(step: int) -> int | None:
    """The step, if a double holds it, and with that a database."""
    return step if abs(step) < 2**53 else None


def of_rank(metrics: Sequence[MetricTask], rank: int) -> list[MetricTask]:
    """Those that are looked for in what this rank prints."""
    return [metric for metric in metrics if metric.rank in (None, rank)]
