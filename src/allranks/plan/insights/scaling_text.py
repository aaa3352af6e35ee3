"""The report on scaling in words: a table, conclusions and doubts. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from allranks.plan.amounts import seconds_text
from allranks.plan.insights.amdahl import Interval
from allranks.plan.insights.comparable_runs import Same
from allranks.plan.insights.scaling import Row, Scaling

_HEAD = ("RANKS", "TIME", "OVERHEAD", "WHOLE", "SPEED-UP", "EFFICIENCY", "OF WHOLE", "SAMPLES/S")


def head(found: Scaling) -> tuple[str, ...]:
    """The titles of the columns of ``table``."""
    return ("JOB", *(("NODES",) if found.unit == "nodes" else ()), *_HEAD)


def table(found: Scaling) -> list[tuple[str, ...]]:
    """A row for each run."""
    return [_cells(row, found.unit) for row in found.rows]


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


def sentences(found: Scaling) -> Iterator[str]:
    """Conclusions from the table, as sentences."""
    if found.work.same is Same.UNEQUAL and not any(row.gain for row in found.rows):
        yield "The runs did different work, so their times cannot be compared:"
        yield from (f"  {reason}" for reason in found.work.reasons)
        return
    if found.fit is None or found.next is None:
        return
    one = found.unit.removesuffix("s")
    fit = found.fit
    yield (
        f"Amdahl: time = {seconds_text(fit.fixed)}{_within(fit.fixed_interval)} "
        f"+ {seconds_text(fit.shared)}{_within(fit.shared_interval)} / {found.unit}"
    )
    if fit.note:
        yield f"  {fit.note}"
    if fit.most is not None and fit.shared > 0:
        yield f"No number of {found.unit} can be more than {fit.most:.3g} times as fast as one."
    saved = f"{seconds_text(found.next.seconds)}{_within(found.next.interval)}"
    yield f"One {one} more than {found.next.size} would save {saved} of the ranks' time."


def _within(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" (95%: {seconds_text(interval.low)} to {seconds_text(interval.high)})"


def doubts(found: Scaling) -> list[str]:
    """Why the conclusions may be wrong, as sentences."""
    work = found.work
    told = list(found.warnings)
    if len(found.rows) > 1 and work.same is Same.ASSUMED:
        told.append(f"assuming equal work: {'; '.join(work.reasons)}")
    if work.same is Same.UNEQUAL and any(row.gain for row in found.rows):
        told.append(f"treated as equal work, as requested: {'; '.join(work.reasons)}")
    return told
