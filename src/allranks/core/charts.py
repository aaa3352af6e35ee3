"""Charts as SVG, without scripts: axes with marks, lines, areas and points. Callers have the data,
and style what they draw by attributes, such as ``class="fit"``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

Dots = Sequence[tuple[Any, Any]]

# So many different numbers are all marked on an axis.
_FEW = 4
_AXIS, _GRID = (f'stroke="currentColor" stroke-opacity="{opacity}"' for opacity in (0.6, 0.15))


class Axis(NamedTuple):
    """From ``low`` to ``high``, or over ``texts`` at equal distances. ``marks`` are (value,
    label)."""

    low: float
    high: float
    marks: tuple[tuple[Any, str], ...] = ()
    log: bool = False
    texts: tuple[str, ...] = ()

    def at(self, value: Any) -> float:
        """The share of the axis before a value."""
        if self.texts:
            return (self.texts.index(text_of(value)) + 0.5) / len(self.texts)
        ends = (value, self.low, self.high)
        # Halved, because the difference of the largest numbers overflows.
        number, low, high = (math.log10(end) if self.log else end / 2 for end in ends)
        return (number - low) / (high - low) if high > low else 0.5


def text_of(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def from_zero(most: float) -> Axis:
    """Four to seven marks at round numbers, the last at or above ``most``."""
    rough = max(most, 1e-9) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 2.5, 5, 10) if times * power >= rough * 0.999)
    count = math.ceil(most / step - 1e-9)
    marks = tuple((i * step, f"{i * step:g}") for i in range(count + 1))
    return Axis(0.0, count * step, marks)


def spanning(values: Sequence[Any]) -> Axis:
    """From the least value to the largest; of texts, all. Numbers that are positive and span two
    orders of magnitude are logarithmic."""
    if not all(isinstance(value, int | float) for value in values):
        texts = tuple(dict.fromkeys(map(text_of, values)))
        return Axis(0.0, 1.0, tuple((text, text) for text in texts), texts=texts)
    low = float(min(values))
    high = float(max(values))
    log = low > 0 and high / low >= 100
    marked = sorted({*values})
    if len(marked) > _FEW:
        marked = [low, math.sqrt(low * high) if log else low + (high - low) / 2, high]
    return Axis(low, high, tuple((value, f"{value:.4g}") for value in marked), log)


class Plane(NamedTuple):
    """A drawing's size and margins, and where values of its axes are in it."""

    across: Axis
    up: Axis
    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float

    def x(self, value: Any) -> float:
        return self.left + (self.width - self.left - self.right) * self.across.at(value)

    def y(self, value: Any) -> float:
        return self._down(self.up.at(value))

    def _down(self, share: float) -> float:
        return self.height - self.bottom - (self.height - self.top - self.bottom) * min(share, 1.0)

    def line(self, style: str, dots: Dots, title: str = "", shape: str = "polyline") -> str:
        """A line through the dots, or with the shape ``polygon`` the area within."""
        points = " ".join(f"{self.x(x):.1f},{self.y(y):.1f}" for x, y in dots)
        return f'<{shape} {style} points="{points}">{_title(title)}</{shape}>' if dots else ""

    def dot(self, style: str, x: Any, y: Any, title: str = "", radius: float = 4.5) -> str:
        at = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="{radius}"'
        return f"<circle {style} {at}>{_title(title)}</circle>"

    def frame(self, below: str = "", beside: str = "") -> Iterator[str]:
        """Both axes with their marks and names, and a grid."""
        yield from self.scale(self.left, self.up, self.width - self.right)
        bottom = self._down(0.0)
        yield from self.marks_below(bottom)
        yield _line(_AXIS, self.left, self.width - self.right, bottom, bottom)
        if below:
            yield text((self.left + self.width - self.right) / 2, self.height - 6, below)
        if beside:
            middle = f'transform="translate(14 {(self.top + bottom) / 2:.1f}) rotate(-90)"'
            yield text(0, 0, beside, style=middle)

    def marks_below(self, bottom: float, top: float | None = None) -> Iterator[str]:
        """The marks of the axis across, with lines up to ``top``."""
        for value, label in self.across.marks:
            x = self.x(value)
            yield _line(_AXIS if top is None else _GRID, x, x, top or bottom + 5, bottom)
            yield text(x, bottom + 18, label)

    def scale(self, x: float, up: Axis, grid: float | None = None) -> Iterator[str]:
        """An upright axis at ``x``, with a grid to there."""
        for value, label in up.marks:
            y = self._down(up.at(value))
            if grid is not None:
                yield _line(_GRID, x, grid, y, y)
            yield text(x - 6, y + 4, shortened(label, 14), "end")
        yield _line(_AXIS, x, x, self._down(1.0), self._down(0.0))


def text(x: float, y: float, label: str, anchor: str = "middle", style: str = "") -> str:
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {at} fill="currentColor" {style}>{escape(label)}</text>'


def shortened(label: str, most: int) -> str:
    return label if len(label) <= most else f"{label[: most - 1]}…"


def svg(parts: Iterable[str], width: float, height: float, label: str, style: str = "") -> str:
    """A drawing that fits its place."""
    inside = "\n".join(part for part in parts if part)
    about = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}" {style}'
    return f"<svg {about}>\n{inside}\n</svg>"


def _title(title: str) -> str:
    """What a reader sees who points at it."""
    return f"<title>{escape(title)}</title>" if title else ""


def _line(style: str, x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line {style} x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}"/>'
