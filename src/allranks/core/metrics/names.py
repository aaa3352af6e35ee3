"""What a job's metrics are called where a name is all there is: known from what the job asked, so
that none changes its name because another rank tells it, too."""

from __future__ import annotations

from collections.abc import Collection

from allranks.core.distributions.topology import world
from allranks.core.plan import Task
from allranks.spec.fields.metric_formats import BUILTIN


def key(task: Task, name: str, rank: int | None, plain: Collection[str]) -> str:
    """With its rank, where several may tell it. What a script told MLflow has no rank, and gives
    way to the series of ranks that are called by the ``plain`` name."""
    if rank is None:
        declared = {metric.name for metric in task.metrics}
        return f"{name}/mlflow" if name in declared or name in plain else name
    return f"{name}/rank_{rank}" if names_rank(task, name, rank) else name


def names_rank(task: Task, name: str, rank: int) -> bool:
    """Whether the rank is part of the name: where several may print the metric, and where a rank
    has logged it by itself that is neither the first nor the one that prints it."""
    printing = _printing(task, name)
    several = None in printing or len(printing) > 1
    return world(task) > 1 and (several or (rank > 0 and rank not in printing))


def _printing(task: Task, name: str) -> set[int | None]:
    """The ranks in whose output the metric may be: of a known format it may have any name."""
    ranks = {metric.rank for metric in task.metrics if metric.name == name}
    return ranks or {metric.rank for metric in task.metrics if metric.pattern == BUILTIN}
