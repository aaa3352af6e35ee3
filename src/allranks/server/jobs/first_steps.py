"""Whether the ranks of a job resumed at one step."""

from __future__ import annotations

from allranks.core.diagnosis import first_steps
from allranks.core.diagnosis.first_steps import Steps
from allranks.store.jobs.job_rows import JobRow
from allranks.store.metric_points import METRIC, Points, Series

# What such a note is about.
APART = "apart"
# Ranks that are looked at.
_MOST = 64


def resumed_apart(points: Points, row: JobRow) -> str:
    """A sentence if ranks went on at different steps in the present attempt; '' if not."""
    attempt = row.record.attempt
    if attempt == 1 and not row.plan.task.continues:
        return ""
    series = dict[str, dict[int, list[Series]]]()
    for one in points.series(row.id, METRIC):
        if one.rank is not None and one.attempt <= attempt and one.length:
            series.setdefault(one.name, {}).setdefault(one.rank, []).append(one)

    def step(one: Series, number: int) -> int:
        return next(points.read(one, number, until=number + 1)).step

    for name, of_ranks in series.items():
        present = {rank: every[-1] for rank, every in of_ranks.items()}
        present = {rank: one for rank, one in present.items() if one.attempt == attempt}
        if len(present) < 2:
            continue
        chosen = sorted(present)[:_MOST]
        before = {rank: of_ranks[rank][-2] for rank in chosen if len(of_ranks[rank]) > 1}
        earlier = {
            rank: Steps(step(one, 0), step(one, one.length - 1)) for rank, one in before.items()
        }
        return first_steps.sentence(
            name, earlier, {rank: step(present[rank], 0) for rank in chosen}
        )
    return ""
