"""A chart of one metric as SVG, for notebooks. Pure: no scripts, nothing from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

WIDTH, HEIGHT = 360, 160
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 8, 24, 18
# Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
_TEXT = 'fill="currentColor" font-size="11" font-family="system-ui,sans-serif"'


def chart(title: str, series: Sequence[Mapping[str, Any]]) -> str:
    """Lines over steps, with gaps for values that are not finite. ``series`` have a ``key`` and
    ``points``: (step, time, value). At most as many as there are colours are drawn."""
    drawn = series[: len(COLOURS)]
    # Halved, because the difference of the largest numbers overflows.
    steps = [point[0] / 2 for each in drawn for point in each["points"]]
    values = [point[2] / 2 for each in drawn for point in each["points"] if _is_finite(point[2])]
    if not values:
        return ""
    x = _Scale(steps, _LEFT, WIDTH - _RIGHT)
    y = _Scale(values, HEIGHT - _BOTTOM, _TOP)
    lines = "".join(_line(each, colour, x, y) for each, colour in zip(drawn, COLOURS, strict=False))
    more = f" ({len(drawn)} of {len(series)})" if len(series) > len(drawn) else ""
    return (
        f'<svg width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{escape(title)}">'
        f'<text x="{_LEFT}" y="14" {_TEXT} font-weight="600">{escape(title)}{more}</text>'
        f"{_axes(x, y)}{lines}</svg>"
    )


class _Scale:
    """Maps the halves of numbers to pixels from ``first`` to ``last``."""

    def __init__(self, numbers: Sequence[float], first: float, last: float) -> None:
        self.least = min(numbers)
        self.most = max(numbers)
        self.first, self.last = first, last

    def __call__(self, number: float) -> float:
        share = (number / 2 - self.least) / ((self.most - self.least) or 1.0)
        return self.first + (self.last - self.first) * share


def _axes(x: _Scale, y: _Scale) -> str:
    def text(across: float, down: float, half: float, anchor: str) -> str:
        place = f'x="{across}" y="{down}" text-anchor="{anchor}"'
        return f'<text {place} {_TEXT} opacity="0.7">{escape(f"{half * 2:.4g}")}</text>'

    bottom = HEIGHT - _BOTTOM
    parts = [
        f'<path d="M{_LEFT} {_TOP}V{bottom}H{WIDTH - _RIGHT}" fill="none" '
        'stroke="currentColor" stroke-opacity="0.3"/>',
        text(_LEFT - 4, bottom, y.least, "end"),
        text(_LEFT, HEIGHT - 4, x.least, "start"),
    ]
    if y.most > y.least:
        parts.append(text(_LEFT - 4, _TOP + 8, y.most, "end"))
    if x.most > x.least:
        parts.append(text(WIDTH - _RIGHT, HEIGHT - 4, x.most, "end"))
    return "".join(parts)


def _line(series: Mapping[str, Any], colour: str, x: _Scale, y: _Scale) -> str:
    pieces = [*_pieces(series["points"])]
    drawn = []
    for piece in pieces:
        places = [f"{x(step):.1f},{y(value):.1f}" for step, value in piece]
        if len(places) == 1:
            across, down = places[0].split(",")
            drawn.append(f'<circle cx="{across}" cy="{down}" r="2" fill="{colour}"/>')
        else:
            style = f'fill="none" stroke="{colour}" stroke-width="1.5"'
            drawn.append(f'<polyline points="{" ".join(places)}" {style}/>')
    return f"<g><title>{escape(series['key'])}</title>{''.join(drawn)}</g>" if drawn else ""


def _pieces(points: Sequence[Sequence[Any]]) -> Iterator[list[tuple[float, float]]]:
    """The points between gaps."""
    piece: list[tuple[float, float]] = []
    for step, _, value in points:
        if _is_finite(value):
            piece.append((step, value))
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _is_finite(value: float | str) -> bool:
    """JSON has no others: they come as texts."""
    return isinstance(value, int | float)
