"""Reports as one HTML page without scripts or external resources, light and dark: what pages have
in common, and the scaling report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from allranks.cli.report.figure import Dots, Figure
from allranks.core.charts import Axis, Plane, shortened, svg, text

_WIDTH, _HEIGHT = 460, 300
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


def _plane(drawn: Figure, up: Axis) -> Plane:
    return Plane(drawn.across, up, _WIDTH, _HEIGHT, left=58, right=16, top=14, bottom=44)


def _dots(plane: Plane, kind: str, dots: Dots) -> Iterable[str]:
    return (plane.dot(f'class="{kind}"', x, y, f"{x:g}: {y:.4g}") for x, y in dots)


def _times(drawn: Figure) -> str:
    plane = _plane(drawn, drawn.up)
    xs = [x for x, _ in drawn.fit]
    above = [(x, high) for x, (_, high) in zip(xs, drawn.band, strict=False)]
    below = [(x, low) for x, (low, _) in zip(xs, drawn.band, strict=False)]
    parts = [
        *plane.frame(drawn.unit, drawn.clock),
        plane.line('class="band"', [*above, *reversed(below)], shape="polygon"),
        plane.line('class="ideal"', drawn.ideal),
        plane.line('class="fit"', drawn.fit),
        *_dots(plane, "dot", drawn.times),
    ]
    return svg(parts, _WIDTH, _HEIGHT, "time by size")


def _efficiency(drawn: Figure) -> str:
    plane = _plane(drawn, drawn.percent)
    parts = [
        *plane.frame(drawn.unit, "%"),
        plane.line('class="ideal"', [(0.0, 100.0), (drawn.across.high, 100.0)]),
        *_dots(plane, "ring", drawn.whole_efficiency),
        *_dots(plane, "dot", drawn.efficiency),
    ]
    return svg(parts, _WIDTH, _HEIGHT, "efficiency by size")


def _bars(drawn: Figure) -> str:
    """A bar for each run."""
    width, bottom = 2 * _WIDTH, _BAR * len(drawn.bars) + 10
    room = {"left": _NAMES, "right": 20, "top": 4, "bottom": 30}
    plane = Plane(drawn.along, drawn.up, width, bottom + 30, **room)
    parts = [*plane.marks_below(bottom, top=4)]
    for index, bar in enumerate(drawn.bars):
        y, begin = 10 + _BAR * index, 0.0
        name = text(_NAMES - 8, y + 15, f"{shortened(bar.name, 16)} ({bar.size})", "end")
        parts.append(f"<g><title>{escape(bar.name)}</title>{name}</g>")
        for kind, part in zip(("before", "ran", "after"), bar.parts, strict=True):
            title = f"<title>{part:.4g} {drawn.clock}</title>"
            wide = f'width="{plane.x(begin + part) - plane.x(begin):.2f}" height="20"'
            place = f'x="{plane.x(begin):.2f}" y="{y}"'
            parts.append(f'<rect class="{kind}" {place} {wide}>{title}</rect>')
            begin += part
    label = text((_NAMES + width - 20) / 2, bottom + 34, drawn.clock)
    return svg([*parts, label], width, bottom + 40, "how the time was spent")
