"""The report on scaling in words: a table, conclusions and doubts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.core.amounts import seconds_text
from allranks.core.insights.amdahl import Interval
from allranks.core.insights.comparable_runs import Same
from allranks.core.insights.scaling import Row, Scaling

_HEAD = ("RANKS", "TIME", "OVERHEAD", "WHOLE", "SPEED-UP", "EFFICIENCY", "OF WHOLE", "SAMPLES/S")


def head(scaling: Scaling) -> tuple[str, ...]:
    """The titles of the columns of ``table``."""
    return ("JOB", *(("NODES",) if scaling.unit == "nodes" else ()), *_HEAD)


def table(scaling: Scaling) -> list[tuple[str, ...]]:
    """A row for each run."""
    return [_cells(row, scaling.unit) for row in scaling.rows]


def _cells(row: Row, unit: str) -> tuple[str, ...]:
    size = (str(row.size),) if unit == "nodes" else ()
    return (
        row.name,
        *size,
        str(row.ranks),
        seconds_text(row.time),
        seconds_text(row.overhead),
        seconds_text(row.whole),
        f"{row.gain.speedup:.2f}" if row.gain else "-",
        f"{100 * row.gain.efficiency:.1f}%" if row.gain else "-",
        f"{100 * row.whole_gain.efficiency:.1f}%" if row.whole_gain else "-",
        f"{row.throughput:.4g}" if row.throughput else "-",
    )


def sentences(scaling: Scaling) -> Iterator[str]:
    """Conclusions from the table, as sentences."""
    if scaling.work.same is Same.UNEQUAL and not any(row.gain for row in scaling.rows):
        yield "The runs did different work, so their times cannot be compared:"
        yield from (f"  {reason}" for reason in scaling.work.reasons)
        return
    if scaling.fit is None or scaling.next is None:
        return
    one = scaling.unit.removesuffix("s")
    fit = scaling.fit
    yield (
        f"Amdahl: time = {seconds_text(fit.fixed)}{_within(fit.fixed_interval)} "
        f"+ {seconds_text(fit.shared)}{_within(fit.shared_interval)} / {scaling.unit}"
    )
    if fit.note:
        yield f"  {fit.note}"
    if fit.most is not None and fit.shared > 0:
        yield f"No number of {scaling.unit} can be more than {fit.most:.3g} times as fast as one."
    saved = f"{seconds_text(scaling.next.seconds)}{_within(scaling.next.interval)}"
    yield f"One {one} more than {scaling.next.size} would save {saved} of the ranks' time."


def _within(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" (95%: {seconds_text(interval.low)} to {seconds_text(interval.high)})"


def doubts(scaling: Scaling) -> list[str]:
    """Why the conclusions may be wrong, as sentences."""
    work = scaling.work
    reasons = list(scaling.warnings)
    if len(scaling.rows) > 1 and work.same is Same.ASSUMED:
        reasons.append(f"assuming equal work: {'; '.join(work.reasons)}")
    if work.same is Same.UNEQUAL and any(row.gain for row in scaling.rows):
        reasons.append(f"treated as equal work, as requested: {'; '.join(work.reasons)}")
    return reasons
