"""The steps of a pipeline as a graph: each step to the right of those that it needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allranks.api.jobs import StepAnswer

_WIDTH, _HEIGHT, _ACROSS, _DOWN = 190, 52, 60, 18


class Box(NamedTuple):
    name: str
    step: StepAnswer
    x: int
    y: int


class Graph(NamedTuple):
    """Boxes, and the curves between them as paths of SVG; all in pixels."""

    boxes: list[Box]
    curves: list[str]
    width: int
    height: int
    box_width: int = _WIDTH
    box_height: int = _HEIGHT


def graph(steps: Mapping[str, StepAnswer]) -> Graph:
    """Place the steps. A step needs those in its ``after``."""
    columns: dict[int, list[str]] = {}
    depth: dict[str, int] = {}
    for name in _sorted(steps):
        depth[name] = 1 + max((depth[each] for each in steps[name]["after"]), default=-1)
        columns.setdefault(depth[name], []).append(name)
    boxes = {
        name: Box(name, steps[name], x * (_WIDTH + _ACROSS) + 4, y * (_HEIGHT + _DOWN) + 4)
        for x, names in columns.items()
        for y, name in enumerate(names)
    }
    curves = [
        _curve(boxes[before], boxes[name]) for name in steps for before in steps[name]["after"]
    ]
    width = max((box.x for box in boxes.values()), default=0) + _WIDTH + 8
    height = max((box.y for box in boxes.values()), default=0) + _HEIGHT + 8
    return Graph([*boxes.values()], curves, width, height)


def _sorted(steps: Mapping[str, StepAnswer]) -> list[str]:
    """The steps, each after those that it needs; the server accepts no cycles."""
    done: dict[str, None] = {}
    left = list(steps)
    while left:
        ready = [each for each in left if all(need in done for need in steps[each]["after"])]
        done |= dict.fromkeys(ready)
        left = [each for each in left if each not in done]
    return [*done]


def _curve(before: Box, after: Box) -> str:
    x1, y1 = before.x + _WIDTH, before.y + _HEIGHT // 2
    x2, y2 = after.x, after.y + _HEIGHT // 2
    middle = (x1 + x2) // 2
    return f"M{x1},{y1} C{middle},{y1} {middle},{y2} {x2},{y2}"
