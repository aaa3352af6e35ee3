"""Profiles as files: traces for Perfetto, speedscope's format, and a flame graph. Pure."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

from allranks.core.diagnosis.stacks import Frame, numbers
from allranks.core.profiles.samples import Samples, Thread

# A flame graph: its width, the height of a row, and the narrowest frame shown, all in pixels.
_WIDTH, _ROW, _NARROWEST = 1200.0, 18, 0.8
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


def perfetto(profiles: Sequence[Samples]) -> dict[str, Any]:
    """A trace with the frames of each thread as slices; times are of the ranks' clocks."""
    first = min((samples.begin for samples in profiles), default=0.0)
    events: list[dict[str, Any]] = []
    for samples in profiles:
        named = {"ph": "M", "pid": samples.rank, "args": {"name": f"rank {samples.rank}"}}
        events.append({**named, "name": "process_name"})
        for number, thread in enumerate(samples.threads):
            where = {"pid": samples.rank, "tid": number}
            events.append(
                {**where, "ph": "M", "name": "thread_name", "args": {"name": thread.name}}
            )
            shift = samples.begin - first
            events += ({**where, **event} for event in _slices(samples, thread, shift))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _slices(samples: Samples, thread: Thread, shift: float) -> Iterator[dict[str, Any]]:
    """A slice for each frame while it stays on the stack."""
    open_frames: list[tuple[str, float]] = []
    before = 0.0
    ends = (*thread.at, thread.at[-1] if thread.at else 0.0)
    for at, number in zip(ends, (*thread.stacks, -1), strict=True):
        names = [] if number < 0 else [f.function for f in samples.stacks[number]]
        same = 0
        while same < min(len(names), len(open_frames)) and names[same] == open_frames[same][0]:
            same += 1
        while len(open_frames) > same:
            name, begin = open_frames.pop()
            times = {"ts": round((begin + shift) * 1e6), "dur": round((before - begin) * 1e6)}
            yield {"ph": "X", "name": name, **times}
        open_frames += ((name, before) for name in names[same:])
        before = at


def speedscope(profiles: Sequence[Samples], name: str) -> dict[str, Any]:
    """One profile for each thread of each rank."""
    frames: dict[Frame, int] = {}
    made = []
    for samples in profiles:
        numbered = [
            [frames.setdefault(frame, len(frames)) for frame in stack] for stack in samples.stacks
        ]
        for thread in samples.threads:
            ends = [0.0, *thread.at]
            weights = [end - begin for begin, end in zip(ends, thread.at, strict=False)]
            made.append(
                {
                    "type": "sampled",
                    "name": f"rank {samples.rank}, {thread.name}",
                    "unit": "seconds",
                    "startValue": 0,
                    "endValue": ends[-1],
                    "samples": [numbered[number] for number in thread.stacks],
                    "weights": weights,
                }
            )
    shown = [{"name": f.function, "file": f.file, "line": f.line} for f in frames]
    return {"$schema": _SCHEMA, "name": name, "shared": {"frames": shown}, "profiles": made}


# ---------------------------------------------------------------- flame graph


class _Node:
    def __init__(self) -> None:
        self.weight = 0.0
        self.ranks: set[int] = set()
        self.below: dict[tuple[str, str], _Node] = {}


def flame_graph(profiles: Sequence[Samples]) -> str:
    """The first threads of all ranks as an SVG: a wider frame took more time."""
    root = _Node()
    for samples in profiles:
        thread = samples.main
        if thread is None:
            continue
        for before, at, number in zip((0.0, *thread.at), thread.at, thread.stacks, strict=False):
            node = root
            node.weight += at - before
            for frame in samples.stacks[number]:
                node = node.below.setdefault((frame.function, frame.file), _Node())
                node.weight += at - before
                node.ranks.add(samples.rank)
    shapes: list[str] = []
    depth = _draw(root, 0.0, 0, _WIDTH / (root.weight or 1.0), root.weight or 1.0, shapes)
    size = f'viewBox="0 0 {_WIDTH:g} {depth * _ROW}" width="100%"'
    style = 'font-family="sans-serif" font-size="11"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style} role="img">'
    return f"{head}<title>Flame graph of {len(profiles)} ranks</title>{''.join(shapes)}</svg>"


def _draw(node: _Node, left: float, row: int, scale: float, total: float, shapes: list[str]) -> int:
    """Draw what is below a node; return the number of rows."""
    depth = row
    for (function, file), child in sorted(node.below.items(), key=lambda item: -item[1].weight):
        width = child.weight * scale
        if width >= _NARROWEST:
            shapes.append(_shape(function, file, child, left, width, row, child.weight / total))
            depth = max(depth, _draw(child, left, row + 1, scale, total, shapes))
        left += width
    return max(depth, row + bool(node.below))


def _shape(
    function: str, file: str, node: _Node, left: float, width: float, row: int, share: float
) -> str:
    hue = 10 + zlib.crc32(file.encode(errors="replace")) % 50
    letters = int(width / 6.5)
    text = function if len(function) <= letters else f"{function[: max(0, letters - 1)]}…"
    title = f"{function} ({file}) {share:.1%}, ranks {numbers(sorted(node.ranks))}"
    box = f'x="{left:.2f}" y="{row * _ROW}" width="{width:.2f}" height="{_ROW - 1}"'
    label = f'<text x="{left + 3:.2f}" y="{row * _ROW + 13}">{html.escape(text)}</text>'
    colour = f'fill="hsl({hue},75%,72%)"'
    shown = label if letters > 2 else ""
    return f"<g><title>{html.escape(title)}</title><rect {box} {colour}/>{shown}</g>"


def page(title: str, lines: Sequence[str], flame: str) -> str:
    """A page of its own with a flame graph."""
    text = "".join(f"<p>{html.escape(line)}</p>" for line in lines)
    head = f"<!doctype html><meta charset=utf-8><title>{html.escape(title)}</title>"
    return f"{head}<body style='font-family:sans-serif'><h1>{html.escape(title)}</h1>{text}{flame}"
