"""A chart of one metric as SVG, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from allranks.core.charts import Axis, Plane, svg, text

WIDTH, HEIGHT = 360, 160
_MARGINS = {"left": 52, "right": 24, "top": 24, "bottom": 24}
# Okabe and Ito's colours, which people with any colour vision tell apart.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
_STYLE = f'width="{WIDTH}" height="{HEIGHT}" font-size="11" font-family="system-ui,sans-serif"'


def chart(title: str, series: Sequence[Mapping[str, Any]]) -> str:
    """Lines over steps, with gaps for values that are not finite. ``series`` have a ``key`` and
    ``points``: (step, time, value). At most as many as there are colours are drawn."""
    drawn = series[: len(COLOURS)]
    steps = [point[0] for each in drawn for point in each["points"]]
    values = [point[2] for each in drawn for point in each["points"] if _is_finite(point[2])]
    if not values:
        return ""
    plane = Plane(_between_ends(steps), _between_ends(values), WIDTH, HEIGHT, **_MARGINS)
    more = f" ({len(drawn)} of {len(series)})" if len(series) > len(drawn) else ""
    heading = text(_MARGINS["left"], 14, title + more, "start", 'font-weight="600"')
    lines = (_line(each, colour, plane) for each, colour in zip(drawn, COLOURS, strict=False))
    return svg([heading, *plane.frame(), *lines], WIDTH, HEIGHT, title, _STYLE)


def _between_ends(numbers: Sequence[float]) -> Axis:
    low = min(numbers)
    high = max(numbers)
    return Axis(low, high, tuple((each, f"{each:.4g}") for each in sorted({low, high})))


def _line(series: Mapping[str, Any], colour: str, plane: Plane) -> str:
    style = f'fill="none" stroke="{colour}" stroke-width="1.5"'
    drawn = [
        plane.line(style, piece)
        if len(piece) > 1
        else plane.dot(f'fill="{colour}"', *piece[0], radius=2)
        for piece in _pieces(series["points"])
    ]
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
