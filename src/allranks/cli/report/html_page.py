"""Reports as one HTML page without scripts or external resources, light and dark: what pages have
in common, and the scaling report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from allranks.cli.report.figure import Axis, Dots, Figure

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 14, 44
_BAR, _NAMES = 30, 150

STYLE = """
:root { color-scheme: light dark; --ink: #1d2733; --faint: #d5dbe1; --paper: #ffffff;
  --soft: #5b6875; --a: #1f5fa8; --b: #c2570c; --c: #7a8794; --band: #1f5fa826; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e8ec; --faint: #37424d; --paper: #14191f;
  --soft: #9aa6b2; --a: #6fb1ff; --b: #ffa05c; --c: #8d99a6; --band: #6fb1ff33; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  margin: 2rem auto; max-width: 62rem; padding: 0 1rem; }
h1 { font-size: 1.35rem; } h2 { font-size: 1rem; margin: 0 0 .3rem; }
.figures { display: grid; gap: 1.6rem;
  grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); }
figure { margin: 0; } figure.wide { grid-column: 1 / -1; } svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft);
  paint-order: stroke; stroke: var(--paper); stroke-width: 4px; }
.axis { stroke: var(--soft); } .grid { stroke: var(--faint); }
.fit { fill: none; stroke: var(--a); stroke-width: 2; } .band { fill: var(--band); }
.ideal { fill: none; stroke: var(--c); stroke-width: 1.5; stroke-dasharray: 5 4; }
.dot { fill: var(--a); } .ring { fill: var(--paper); stroke: var(--b); stroke-width: 2; }
.key { color: var(--soft); font-size: .85rem; margin: .2rem 0 0; }
.before { fill: var(--b); } .ran { fill: var(--a); } .after { fill: var(--c); }
table { border-collapse: collapse; margin: 1.2rem 0; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
th, td { text-align: right; padding: .25rem .8rem; border-bottom: 1px solid var(--faint);
  white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
.warning { color: var(--b); }
.trial { fill: none; stroke: var(--c); stroke-width: 1; opacity: .5; }
.good { fill: none; stroke: var(--a); stroke-width: 1.5; }
.best { fill: none; stroke: var(--b); stroke-width: 2.5; }
"""


def page(
    drawn: Figure,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    sentences: Iterable[str],
    warnings: Iterable[str],
) -> str:
    """The page: conclusions, figures and table."""
    singular = drawn.unit.removesuffix("s")
    figures = [
        boxed(f"Time by number of {drawn.unit}", _times(drawn), _times_key(drawn)),
        boxed("Efficiency", _efficiency(drawn), _efficiency_key(drawn)),
        boxed("How the time was spent", _bars(drawn), _BARS_KEY, wide=True),
    ]
    lines = [f"<p>{escape(line)}</p>" for line in sentences]
    lines += [f'<p class="warning">{escape(line)}</p>' for line in warnings]
    title = f"Scaling, by {singular}"
    return whole(title, f"Scaling by {drawn.unit}", lines, figures, table(head, rows))


def whole(
    title: str, heading: str, lines: Iterable[str], figures: Iterable[str], *more: str
) -> str:
    """An HTML page; ``lines``, ``figures`` and ``more`` are HTML."""
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{STYLE}</style>",
            f"<h1>{escape(heading)}</h1>",
            *lines,
            '<div class="figures">',
            *figures,
            "</div>",
            *more,
            "</html>\n",
        ]
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that scrolls by itself."""
    cells = ["".join(f"<th>{escape(each)}</th>" for each in head)]
    cells += ["".join(f"<td>{escape(each)}</td>" for each in row) for row in rows]
    body = "\n".join(f"<tr>{row}</tr>" for row in cells)
    return f'<div class="scroll"><table>\n{body}\n</table></div>'


def boxed(title: str, drawing: str, key: str, wide: bool = False) -> str:
    """A figure with its title and its key."""
    kind = ' class="wide"' if wide else ""
    return f'<figure{kind}><h2>{escape(title)}</h2>\n{drawing}\n<p class="key">{key}</p></figure>'


_BARS_KEY = (
    '<span style="color: var(--b)">■</span> before the ranks started &nbsp; '
    '<span style="color: var(--a)">■</span> ranks &nbsp; '
    '<span style="color: var(--c)">■</span> after they ended'
)


def _times_key(drawn: Figure) -> str:
    if not drawn.fit:
        return "the runs"
    band = ", with its 95% interval" if drawn.band else ""
    return f"the runs, Amdahl&rsquo;s law through them (line{band}), and the ideal (dashed)"


def _efficiency_key(drawn: Figure) -> str:
    if not drawn.efficiency:
        return "not available: the runs cannot be compared"
    return "of the ranks&rsquo; time (filled) and from submission to end (rings)"


class _Plane:
    """Positions of values in a drawing."""

    def __init__(self, across: Axis, up: Axis) -> None:
        self.across, self.up = across, up

    def x(self, value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * value / self.across.top

    def y(self, value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * value / self.up.top

    def line(self, kind: str, dots: Dots) -> str:
        points = " ".join(f"{self.x(x):.1f},{self.y(min(y, self.up.top)):.1f}" for x, y in dots)
        return f'<polyline class="{kind}" points="{points}"/>' if dots else ""

    def dots(self, kind: str, dots: Dots) -> Iterable[str]:
        for x, y in dots:
            title = f"<title>{x:g}: {y:.4g}</title>"
            at = f'cx="{self.x(x):.1f}" cy="{self.y(y):.1f}" r="4.5"'
            yield f'<circle class="{kind}" {at}>{title}</circle>'

    def frame(self, below: str, beside: str) -> Iterable[str]:
        left = self.x(0)
        right = self.x(self.across.top)
        bottom = self.y(0)
        top = _TOP
        for mark in self.up.marks:
            y = self.y(mark)
            yield f'<line class="grid" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
            yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>'
        for mark in self.across.marks:
            x = self.x(mark)
            yield f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 5}"/>'
            yield f'<text x="{x:.1f}" y="{bottom + 18}" text-anchor="middle">{mark:g}</text>'
        yield f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>'
        yield f'<line class="axis" x1="{left}" x2="{left}" y1="{top}" y2="{bottom}"/>'
        middle = (left + right) / 2
        yield f'<text x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(below)}</text>'
        aside = f'transform="translate(14 {(_TOP + bottom) / 2}) rotate(-90)"'
        yield f'<text {aside} text-anchor="middle">{escape(beside)}</text>'


def _times(drawn: Figure) -> str:
    plane = _Plane(drawn.across, drawn.up)
    parts = list(plane.frame(drawn.unit, drawn.clock))
    if drawn.band:
        xs = [x for x, _ in drawn.fit]
        around = [(x, high) for x, (_, high) in zip(xs, drawn.band, strict=True)]
        around += [(x, low) for x, (low, _) in reversed(list(zip(xs, drawn.band, strict=True)))]
        points = " ".join(
            f"{plane.x(x):.1f},{plane.y(min(y, drawn.up.top)):.1f}" for x, y in around
        )
        parts.append(f'<polygon class="band" points="{points}"/>')
    parts += [plane.line("ideal", drawn.ideal), plane.line("fit", drawn.fit)]
    return svg([*parts, *plane.dots("dot", drawn.times)], _HEIGHT, "time by size")


def _efficiency(drawn: Figure) -> str:
    plane = _Plane(drawn.across, drawn.percent)
    whole = ((0.0, 100.0), (drawn.across.top, 100.0))
    parts = [*plane.frame(drawn.unit, "%"), plane.line("ideal", whole)]
    parts += plane.dots("ring", drawn.whole_efficiency)
    return svg([*parts, *plane.dots("dot", drawn.efficiency)], _HEIGHT, "efficiency by size")


def _bars(drawn: Figure) -> str:
    """A bar for each run."""
    width, bottom = 2 * _WIDTH, _BAR * len(drawn.bars) + 10
    room = width - _NAMES - 20

    def x(value: float) -> float:
        return _NAMES + room * value / drawn.along.top

    parts = []
    for mark in drawn.along.marks:
        parts.append(
            f'<line class="grid" x1="{x(mark):.1f}" x2="{x(mark):.1f}" y1="4" y2="{bottom}"/>'
            f'<text x="{x(mark):.1f}" y="{bottom + 16}" text-anchor="middle">{mark:g}</text>'
        )
    for index, bar in enumerate(drawn.bars):
        y, begin = 10 + _BAR * index, 0.0
        short = bar.name if len(bar.name) <= 20 else bar.name[:19] + "…"
        name = f"<title>{escape(bar.name)}</title>{escape(short)} ({bar.size})"
        parts.append(f'<text x="{_NAMES - 8}" y="{y + 15}" text-anchor="end">{name}</text>')
        for kind, part in zip(("before", "ran", "after"), bar.parts, strict=True):
            title = f"<title>{part:.4g} {drawn.clock}</title>"
            wide = f'width="{room * part / drawn.along.top:.2f}" height="20"'
            parts.append(f'<rect class="{kind}" x="{x(begin):.2f}" y="{y}" {wide}>{title}</rect>')
            begin += part
    middle = _NAMES + room / 2
    label = f'<text x="{middle}" y="{bottom + 34}" text-anchor="middle">{drawn.clock}</text>'
    return svg([*parts, label], bottom + 40, "how the time was spent", width)


def svg(parts: Iterable[str], height: float, label: str, width: float = _WIDTH) -> str:
    """A drawing that fits its place."""
    inside = "\n".join(part for part in parts if part)
    return f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{label}">\n{inside}\n</svg>'
