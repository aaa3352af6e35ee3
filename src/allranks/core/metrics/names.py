"""What a job's metrics are called where a name is all there is: known from what the job asked, so
that none changes its name because another rank tells it, too."""

from __future__ import annotations

from collections.abc import Collection

from allranks.core.distributions.topology import world
from allranks.core.plan import Task


def of_several(task: Task, name: str) -> bool:
    """Whether more than one rank may print it."""
    ranks = {metric.rank for metric in task.metrics if metric.name == name}
    ranks = ranks or {metric.rank for metric in task.metrics}
    return world(task) > 1 and (None in ranks or len(ranks) > 1)


def key(task: Task, name: str, rank: int | None, printed: Collection[str]) -> str:
    """With its rank, where several may tell it. What a script told by itself has no rank, and gives
    way to what is ``printed`` under the same name."""
    if rank is None:
        declared = {metric.name for metric in task.metrics}
        return f"{name}/mlflow" if name in declared or name in printed else name
    return f"{name}/rank_{rank}" if names_rank(task, name, rank) else name


def names_rank(task: Task, name: str, rank: int) -> bool:
    """Whether the rank is part of the name: where several may print the metric, and where a rank
    other than the first has logged it by itself."""
    printing = {metric.rank for metric in task.metrics}
    has_several = world(task) > 1
    return of_several(task, name) or (has_several and rank > 0 and rank not in printing)
