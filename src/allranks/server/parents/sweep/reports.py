"""The reports of a trial's primary metric, wherever they come from."""

from __future__ import annotations

from collections import Counter

from allranks.store.metric_points import METRIC, Points, Series


def reports(points: Points, job_id: int, metric: str) -> tuple[float, ...]:
    """The values of a metric by step. A restarted attempt replaces the steps that it repeats."""
    series: dict[int, Series] = {}
    for each in sorted(points.series(job_id, METRIC), key=_first_rank):
        if each.name == metric:
            series.setdefault(each.attempt, each)
    values: dict[tuple[int, int], float] = {}
    for attempt in sorted(series):
        # Scripts may report several values with one step, such as MLflow's default 0.
        repeats: Counter[int] = Counter()
        for point in points.read(series[attempt]):
            values[point.step, repeats[point.step]] = point.value
            repeats[point.step] += 1
    return tuple(values[key] for key in sorted(values))


def reported_metrics(points: Points, job_id: int) -> list[str]:
    """The names of all metrics that a job has reported."""
    return sorted({each.name for each in points.series(job_id, METRIC)})


def _first_rank(series: Series) -> tuple[bool, int, int]:
    return series.rank is None, series.rank or 0, series.node
