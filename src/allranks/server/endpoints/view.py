"""Endpoints and deployments as the API answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, cast

from allranks.api.endpoints import (
    DeploymentAnswer,
    EndpointAnswer,
    EndpointEvent,
    RequestCounts,
)
from allranks.core.endpoints.events import sentence
from allranks.core.endpoints.patience import tries
from allranks.core.endpoints.record import Deployment, Endpoint
from allranks.core.endpoints.states import ReplicaState, endpoint_state, state
from allranks.core.endpoints.traffic import with_share
from allranks.serve.table import NOT_YET
from allranks.server.dependencies import Services
from allranks.server.endpoints.model_environment import note_on
from allranks.server.endpoints.router_process import RouterProcess
from allranks.server.http.public_listener import load, name_of
from allranks.server.jobs.hosts import host_of
from allranks.server.jobs.view import status_reason
from allranks.server.timestamps import iso_time
from allranks.spec import endpoint as spec_of
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.endpoints import StoredEvent

# Of what the router tells, for the controller alone.
_INNER = ("busy", "replicas")


def endpoint(row: Endpoint, services: Services) -> EndpointAnswer:
    made = row.parsed()
    rows = row.answering
    deployments = [deployment(item, services) for item in rows]
    states = {item["name"]: item["state"] for item in deployments}
    router = RouterProcess(services.home.serve)
    address, front, where = router.address, router.front, load(services.home)
    has_keys = made.auth_mode != "none"  # without, the router answers at names of this machine only
    others = f"https://{name_of(where)}:{front}" if front and where and has_keys else None
    first = max(deployments, key=lambda item: made.traffic.get(item["name"], 0), default=None)
    path = (first and spec_of.path_of(first["spec"], "scoring_route")) or "/score"
    return {
        "name": row.name,
        "state": endpoint_state(states, made.traffic),
        "description": made.description,
        "tags": dict(made.tags),
        "auth_mode": made.auth_mode,
        "scoring_uri": f"{address}/endpoints/{row.name}{path}" if address else None,
        "public_uri": f"{others}/endpoints/{row.name}{path}" if others else None,
        "traffic": dict(made.traffic),
        "traffic_when_ready": next(
            (
                with_share(made.traffic, item.name, item.takes_traffic)
                for item in rows
                if item.takes_traffic
            ),
            {},
        ),
        "mirror_traffic": dict(made.mirror_traffic),
        "compute": made.compute,
        "created_by": row.created_by,
        "created_at": iso_time(row.created_at) or "",
        "deployments": deployments,
        "notes": spec_of.notes(row.spec),
    }


def _replicas(row: Deployment, reports: Mapping[str, Any]) -> list[ReplicaState]:
    """The replicas as the router has them: one drains when no request goes there any more."""
    replicas = []
    for item in row.replicas:
        report = reports.get(item.job, {})
        since = item.drains_since if report.get("drains", True) else None
        replicas.append(
            ReplicaState(item.job, item.revision, bool(report.get("ready")), drains_since=since)
        )
    return replicas


def _reason(
    row: Deployment, replica: ReplicaState, reported: str | None, services: Services
) -> str | None:
    """Why a replica is not ready: what its job waits for, else what the router says of it."""
    job = None if replica.ready else services.records.latest(replica.job)
    was_ready = any(item.was_ready for item in row.replicas if item.job == replica.job)
    if job and job.record.status is JobStatus.RUNNING and job.started_at and not was_ready:
        script = (row.spec.get("code_configuration") or {}).get("scoring_script")
        loads = script and (reported or NOT_YET) == NOT_YET
        what = f"init() of {script} runs" if loads else f"{reported or NOT_YET}; it runs"
        seconds = int(time.time() - job.started_at)
        return f"{what} since {seconds} s; readiness_probe allows {row.ready_within:g} s"
    if job is None or job.record.status in (JobStatus.RUNNING, *TERMINAL):
        return reported
    reason = status_reason(job, services.home)
    if "GPU" in reason and any(item.was_ready for item in row.replicas):
        reason += "; those of the replicas that answer are kept until new ones do"
    return reason or reported


def _host(name: str, services: Services) -> str | None:
    job = services.records.latest(name)
    return host_of(job, 0) if job is not None else None


def _answering_model(row: Deployment, replicas: list[ReplicaState]) -> str:
    """That of the newest replica that answers; while none does, that of the specification."""
    jobs = {item.job for item in replicas if item.ready and item.drains_since is None}
    answering = [item for item in row.replicas if item.job in jobs]
    newest = max(answering, key=lambda item: item.revision, default=row)
    return newest.model


def _counts(row: Deployment, counts: Mapping[str, Any], services: Services) -> RequestCounts:
    totals = {key: value for key, value in counts.items() if key not in _INNER}
    rate = services.endpoints.samples.rate(row.key)
    return cast(RequestCounts, {**totals, "rate": round(rate, 3)})


def deployment(row: Deployment, services: Services) -> DeploymentAnswer:
    counts: dict[str, Any] = services.endpoints.counts.get(row.key, {})
    reports = counts.get("replicas", {})
    instances = row.instances
    replicas = _replicas(row, reports)
    now = state(replicas, row.revision, instances, row.failures)
    left = row.next_try - time.time()
    return {
        "name": row.name,
        "endpoint": row.endpoint,
        "state": now,
        "reason": row.reason,
        "failed_job": row.failed_job,
        "failures": row.failures,
        "tries": "" if now == "Ready" else tries(row.failures, row.was_ready, left),
        "takes_traffic": bool(row.takes_traffic),
        "ready": sum(item.ready and item.drains_since is None for item in replicas),
        "instances": instances,
        "revision": row.revision,
        "model": _answering_model(row, replicas) or None,
        "created_by": row.created_by,
        "created_at": iso_time(row.created_at) or "",
        "replicas": [
            {
                "job": item.job,
                "host": _host(item.job, services),
                "ready": item.ready,
                "reason": _reason(row, item, reports.get(item.job, {}).get("reason"), services),
            }
            for item in replicas
        ],
        "counts": _counts(row, counts, services) if counts else None,
        "notes": [*spec_of.notes(row.spec), *note_on(row.submission["spec"])],
        "spec": row.spec,
    }


def event(stored: StoredEvent) -> EndpointEvent:
    made = stored.event
    return {
        "id": stored.id,
        "at": iso_time(made.at) or "",
        "kind": str(made.kind),
        "deployment": made.deployment or None,
        "job": made.data.get("job"),
        "by": made.by or None,
        "message": sentence(made),
    }
