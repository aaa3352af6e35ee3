"""Collect the facts for reports from the server's data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.core.distributions.topology import log_name
from allranks.core.insights import comparable_runs
from allranks.core.insights.job_facts import MEASURED, Facts, Point, Series
from allranks.core.job.instance_types import has_rdma
from allranks.errors import UsageError
from allranks.http_client import Client

if TYPE_CHECKING:
    from allranks.api.metrics import ShownJob

# These roles run beside the training ranks at their own pace.
_ASIDE = ("ps", "evaluator")
# Of so many metrics that are not MEASURED, and so many of their ranks, all points are read.
_SOME = 8

Answer = Mapping[str, Any]


def observed(client: Client, name: str) -> Facts:
    """All facts about a job. Raises NotFound if it does not exist, UsageError for a job
    with children."""
    job = client.ask(routes.show_job, name)
    if job["type"] != "command":
        best = job.get("best")
        child = best["job"] if best else "CHILD"
        hint = f"name one of its jobs: allranks report {child}"
        raise UsageError(f"{name} is a {job['type']} and trains nothing itself", hint=hint)
    metrics: Answer = {"series": _series(client, job)}
    resources = client.ask(routes.job_resources, name)
    return facts(job, metrics, resources, client.ask(routes.job_files, name))


def _series(client: Client, job: ShownJob) -> list[Answer]:
    """Those that reports look at, as there may be points by the million: the MEASURED ones; of
    others those of some ranks, which tell how fast they train, and of the rest that they are
    there."""
    name, attempt = job["name"], job["attempts"]
    summary = client.ask(routes.metrics_summary, name, shape="false")
    several = [one for one in summary["series"] if one["attempt"] == attempt]
    lengths: dict[str, int] = {}
    for one in several:
        lengths[one["name"]] = max(one["length"], lengths.get(one["name"], 0))
    measured = [metric for metric in lengths if metric in MEASURED]
    others = sorted(lengths.keys() - {*measured}, key=lambda metric: -lengths[metric])[:_SOME]
    ranks = set[int]()
    for metric in others:
        reporting = (one["rank"] for one in several if one["name"] == metric)
        ranks |= {*sorted(rank for rank in reporting if rank is not None)[:_SOME]}
    series: list[Answer] = []
    for metrics, of_ranks in ((measured, ()), (others, ranks)):
        if metrics:
            which: dict[str, Any] = {"attempt": attempt, "metric": metrics, "rank": [*of_ranks]}
            answer = client.ask(routes.job_metrics, name, **which)
            series += answer["series"]
    complete = {one["id"] for one in series}
    for one in several:
        if one["id"] not in complete and one["min"] is not None:
            step, at, _ = one["last"]
            series.append({**one, "points": [(step, at, one["min"])]})
    return series


def facts(job: Answer, metrics: Answer, resources: Answer, files: Iterable[Answer] = ()) -> Facts:
    """The facts from the server's replies: the job, its metrics and resource use (``{"series":
    […]}``), and its files."""
    nodes, error = job["node_states"], job["error"] or {}
    return Facts(
        job["name"],
        status=job["status"],
        reason=error.get("reason") or "",
        nodes=job["nodes"],
        ranks=job["processes"],
        gpus=job.get("gpus_per_node") or 0,
        cpus=tuple(node.get("cpus") for node in nodes),
        hosts=tuple(node["host"] or None for node in nodes),
        rdma=tuple(node.get("rdma") for node in nodes),
        size_with_rdma=_with_rdma(job.get("instance_type") or ""),
        distribution=job["distribution"],
        compute=job["compute"],
        attempts=job["attempts"],
        created_at=_seconds(job["created_at"]) or 0.0,
        started_at=_seconds(job["started_at"]),
        ranks_ended_at=_seconds(job.get("ranks_ended_at")),
        ended_at=_seconds(job["ended_at"]),
        request=_request(job),
        aside=frozenset(rank["rank"] for rank in job["ranks"] if rank["role"] in _ASIDE),
        logged=_logged(job, files),
        metrics=tuple(_metrics(metrics, job["attempts"])),
        resources=tuple(_resources(resources, job["attempts"])),
    )


def _request(job: Answer) -> dict[str, str | None]:
    spec = job["spec"]
    # What was requested, not which nodes reported which Python.
    environment = {k: v for k, v in job["environment"].items() if k != "pythons"}
    return {
        "code": job.get("code"),
        "command": comparable_runs.command(job["command"]),
        "inputs": _text(spec.get("inputs")),
        "variables": _text(spec.get("environment_variables")),
        "environment": _text(environment),
    }


def _with_rdma(size: str) -> str:
    return size if has_rdma(size) else ""


def _text(value: Any) -> str:
    return json.dumps(value or {}, sort_keys=True)


def _logged(job: Answer, files: Iterable[Answer]) -> dict[int, int]:
    """The bytes of output of each rank in the last attempt."""
    sizes = {file["path"]: file["size"] for file in files}
    ranks, folder = job["processes"], f"attempts/{job['attempts']}"
    return {rank: sizes.get(f"{folder}/{log_name(rank, ranks)}", 0) for rank in range(ranks)}


def _metrics(answer: Answer, attempt: int) -> Iterator[Series]:
    for series in answer.get("series", ()):
        if series.get("attempt") in (None, attempt):
            points = tuple(Point(at, float(value), step) for step, at, value in series["points"])
            yield Series(series["name"], points, rank=series["rank"])


def _resources(answer: Answer, attempt: int) -> Iterator[Series]:
    for series in answer.get("series", ()):
        if series.get("attempt") in (None, attempt):
            points = tuple(Point(at, float(value)) for at, value in series["points"])
            where = {name: series.get(name) for name in ("rank", "node", "gpu")}
            yield Series(series["name"], points, **where)


def _seconds(text: str | None) -> float | None:
    return None if text is None else datetime.fromisoformat(text).timestamp()
