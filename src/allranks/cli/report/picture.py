"""A scaling report as a PNG, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from allranks.cli.report.figure import Figure
from allranks.core.charts import Axis
from allranks.errors import UsageError

_A, _B, _C = "#1f5fa8", "#c2570c", "#7a8794"


def write(drawn: Figure, path: Path) -> None:
    """Write the figure as a PNG. Raises UsageError without matplotlib."""
    try:
        # Not with pyplot, which keeps figures in memory.
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        hint = "pip install 'allranks[report]'; --html FILE draws the same figures without it"
        raise UsageError(f"a picture needs matplotlib: {error}", where="--png", hint=hint) from None
    high = 4.2 + 0.6 + 0.36 * len(drawn.bars)
    canvas = Canvas(figsize=(10, high), dpi=150, layout="constrained")
    FigureCanvasAgg(canvas)
    ratios = [4.2, 0.6 + 0.36 * len(drawn.bars)]
    grid = canvas.add_gridspec(2, 2, height_ratios=ratios)
    _times(canvas.add_subplot(grid[0, 0]), drawn)
    _efficiency(canvas.add_subplot(grid[0, 1]), drawn)
    _bars(canvas.add_subplot(grid[1, :]), drawn)
    canvas.savefig(path, format="png")


def _times(axes: Any, drawn: Figure) -> None:
    xs = [x for x, _ in drawn.fit]
    if drawn.band:
        lows, highs = zip(*drawn.band, strict=True)
        axes.fill_between(xs, lows, highs, color=_A, alpha=0.15, linewidth=0, label="95% interval")
    if drawn.fit:
        axes.plot(*zip(*drawn.ideal, strict=True), color=_C, dashes=(5, 4), label="ideal")
        axes.plot(xs, [y for _, y in drawn.fit], color=_A, label="Amdahl's law")
    axes.plot(*zip(*drawn.times, strict=True), "o", color=_A, label="runs")
    if drawn.fit:
        axes.legend(frameon=False)
    _frame(axes, drawn, drawn.up, drawn.clock, f"Time by number of {drawn.unit}")


def _efficiency(axes: Any, drawn: Figure) -> None:
    axes.axhline(100, color=_C, dashes=(5, 4))
    if drawn.efficiency:
        rings = {"markerfacecolor": "white", "markeredgecolor": _B, "markeredgewidth": 2}
        whole = list(zip(*drawn.whole_efficiency, strict=True))
        axes.plot(*whole, "o", **rings, label="from submission to end")
        axes.plot(*zip(*drawn.efficiency, strict=True), "o", color=_A, label="ranks' time")
        axes.legend(frameon=False, loc="lower left")
    else:
        text = "not available: the runs\ncannot be compared"
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
    _frame(axes, drawn, drawn.percent, "%", "Efficiency")


def _bars(axes: Any, drawn: Figure) -> None:
    # matplotlib reads a dollar sign as a formula.
    names = [f"{bar.name} ({bar.size})".replace("$", r"\$") for bar in drawn.bars]
    begin = [0.0] * len(names)
    labels = ("before the ranks started", "ranks", "after they ended")
    for part, (label, colour) in enumerate(zip(labels, (_B, _A, _C), strict=True)):
        wide = [bar.parts[part] for bar in drawn.bars]
        axes.barh(range(len(names)), wide, left=begin, color=colour, label=label, height=0.65)
        begin = [a + b for a, b in zip(begin, wide, strict=True)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, drawn.along.high)
    axes.set_xlabel(drawn.clock)
    axes.set_title("How the time was spent", loc="left")
    axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1, 0.98))


def _frame(axes: Any, drawn: Figure, up: Axis, clock: str, title: str) -> None:
    axes.set_xlim(0, drawn.across.high)
    axes.set_xticks([value for value, _ in drawn.across.marks])
    axes.set_ylim(0, up.high * 1.02)
    axes.set_yticks([value for value, _ in up.marks])
    axes.set_xlabel(drawn.unit)
    axes.set_ylabel(clock)
    axes.set_title(title, loc="left")
    axes.grid(axis="y", alpha=0.4)
