"""The route for how all ranks of a job go now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from allranks.api.metrics import NodeLoad, RankRow, RankTable
from allranks.core.distributions import topology
from allranks.core.plan import Task
from allranks.server.api.routes.metrics import measured
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.jobs.slow_ranks import slow_ranks_of
from allranks.statuses import TERMINAL
from allranks.store.jobs.job_rows import JobRow
from allranks.store.metric_points import METRIC, Point, Series

# What scripts call the time of a step.
_STEP_TIME = re.compile(r"(step|batch|iter(ation)?)_?time|time_?per_?step", re.IGNORECASE)
# The last points from which the time of a step is known otherwise, and the most ranks for which
# they are read.
_POINTS, _RANKS = 20, 64


def table(name: str, services: ServicesDep) -> RankTable:
    """How each rank of a job goes, and who holds the others."""
    row = services.records.with_ranks(name)
    slow = slow_ranks_of(row, services.records)
    now = [one for one in slow if one["until"] is None and row.record.status not in TERMINAL]
    waiting = services.slow_ranks.waiting(name)
    load = {node["node"]: node for node in measured(row, services)["load"] if node["now"]}
    steps = _steps(row, services)
    ranks = [
        _row(row.plan.task, place.rank, place.node, load.get(place.node))
        for place in topology.ranks(row.plan.task)
    ]
    for one in ranks:
        rank = one["rank"]
        one["waiting"] = waiting.get(rank)
        one["step"], one["step_time"] = steps.get(rank, (None, None))
        one["slow"] = any(
            which["rank"] == rank or (which["rank"] is None and which["node"] == one["node"])
            for which in now
        )
    return {
        "name": row.name,
        "status": str(row.record.status),
        "ranks": ranks,
        "slow_ranks": slow,
    }


def _row(task: Task, rank: int, node: int, load: NodeLoad | None) -> RankRow:
    own = next((one for one in load["ranks"] if one["rank"] == rank), None) if load else None
    gpus = [gpu["gpu_load"] for gpu in load["gpus"] if "gpu_load" in gpu] if load else []
    if len(gpus) == task.procs:
        gpus = [gpus[rank % task.procs]]
    numbers = [float(value) for value in gpus if not isinstance(value, str)]
    return {
        "rank": rank,
        "node": node,
        "host": load["host"] if load else None,
        "step": None,
        "step_time": None,
        "waiting": None,
        "cpu": own.get("cpu") if own else None,
        "memory": own.get("memory") if own else None,
        "gpu": sum(numbers) / len(numbers) if numbers else None,
        "disk": _sum(load, "disk_read", "disk_write") if load else None,
        "network": _sum(load["node_load"], "net_in", "net_out") if load else None,
        "slow": False,
    }


def _sum(load: Mapping[str, object], *names: str) -> float | None:
    values = [load[name] for name in names if isinstance(load.get(name), int | float)]
    return sum(map(float, values)) if values else None  # type: ignore[arg-type]


def _steps(row: JobRow, services: Services) -> dict[int, tuple[int | None, float | None]]:
    """The last step of each rank, and the seconds of one: as the script logs them, or by when it
    logged its last steps."""
    newest = services.points.newest(row.id, METRIC, row.record.attempt)
    of_ranks: dict[int, list[tuple[Series, Point]]] = {}
    for series, point in newest:
        if series.rank is not None:
            of_ranks.setdefault(series.rank, []).append((series, point))
    return {
        rank: (
            max(point.step for _, point in several),
            _step_time(several, services, len(of_ranks)),
        )
        for rank, several in of_ranks.items()
    }


def _step_time(
    several: Sequence[tuple[Series, Point]], services: Services, ranks: int
) -> float | None:
    for series, point in several:
        if _STEP_TIME.search(series.name) and 0 < point.value < 1e6:
            return point.value
    if ranks > _RANKS:
        return None
    series, _ = max(several, key=lambda pair: pair[0].length)
    points = list(services.points.read(series, max(0, series.length - _POINTS)))
    steps = points[-1].step - points[0].step if points else 0
    return (points[-1].at - points[0].at) / steps if steps > 0 else None
