"""Routes for endpoints and their deployments."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

from allranks.api.endpoints import (
    DeploymentAnswer,
    DeploymentSeries,
    EndpointAnswer,
    EndpointKeys,
    RequestCounts,
)
from allranks.core.data.model_flavor import script_problem
from allranks.core.plan import Plan
from allranks.core.replicas import Replica, endpoint_state, state, tries, with_share
from allranks.errors import (
    Conflict,
    MissingCode,
    NotFound,
    Problem,
    Refused,
    ServerError,
    SpecError,
    UsageError,
)
from allranks.serve.table import NOT_YET
from allranks.server.assets.data_locations import Find
from allranks.server.auth.roles import Who, require_own
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.endpoints.router_process import RouterProcess
from allranks.server.endpoints.scaling import instances_of, ready_within, scale_of
from allranks.server.http.public_listener import load, name_of
from allranks.server.jobs.hosts import host_of
from allranks.server.jobs.view import status_reason
from allranks.server.loop.mailbox import ADDRESS
from allranks.server.loop.subscriptions import Change
from allranks.server.submission.submit import NO_SUBMISSION, Submission, plan
from allranks.server.timestamps import iso_time
from allranks.spec import endpoint as spec_of
from allranks.spec.fields.azureml_references import asset_of
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.endpoints import DeploymentRow, EndpointRow
from allranks.store.jobs.job_rows import snapshots

if TYPE_CHECKING:
    from allranks.api.endpoints import DeploymentState

# Of what the router tells, for the keeper alone.
_INNER = ("busy", "replicas")


def list_endpoints(services: ServicesDep) -> list[EndpointAnswer]:
    return [_endpoint(row, services) for row in services.endpoints.list()]


def create(data: JsonBody, services: ServicesDep, who: Who) -> EndpointAnswer:
    """Create an endpoint, with two keys of its own."""
    made = spec_of.parse_endpoint(data)
    row = EndpointRow(made.name, dict(data), [], time.time(), who.name)
    _check_traffic(made, services)
    if services.batch.find(made.name) is not None:
        hint = "take another name, or delete that one first"
        raise Conflict(f"{made.name!r} is a batch endpoint", hint=hint)
    with services.endpoints.lock:
        services.endpoints.put(row, new=True)
        _new_key(services, row, "primary", "secondary")
    services.subscriptions.publish(Change.ENDPOINT)
    return _endpoint(services.endpoints.get(made.name), services)


def show(name: str, services: ServicesDep) -> EndpointAnswer:
    return _endpoint(services.endpoints.get(name), services)


def series(name: str, services: ServicesDep) -> list[DeploymentSeries]:
    """How its deployments answered in the last hour, or since the server started."""
    services.endpoints.get(name)
    samples = services.endpoints.samples
    return [samples.series(row.key, row.name) for row in _deployments(name, services)]


def update(name: str, data: JsonBody, services: ServicesDep, who: Who) -> EndpointAnswer:
    """Replace keys of an endpoint's specification: its traffic, tags, …"""
    with services.endpoints.lock:
        row = services.endpoints.get(name)
        require_own(who, name, row.created_by)
        changed = {**row.spec, **data, "name": name}
        _check_traffic(spec_of.parse_endpoint(changed), services)
        services.endpoints.put(row._replace(spec=changed))
        if "traffic" in data:
            services.endpoints.keep_traffic(name)
    _tell_router(services, name)
    return _endpoint(services.endpoints.get(name), services)


def delete(name: str, services: ServicesDep, who: Who) -> EndpointAnswer:
    """Delete an endpoint with its deployments."""
    with services.endpoints.lock:
        row = services.endpoints.get(name)
        require_own(who, name, row.created_by)
        answer = _endpoint(row, services)
        for item in services.endpoints.deployments(name):
            services.endpoints.change(item, is_deleted=True)
        services.endpoints.delete(name)
        services.endpoints.keys.put(name, {})
    _tell_router(services, name)
    return answer


def show_keys(name: str, services: ServicesDep, who: Who) -> EndpointKeys:
    """The keys, for who created the endpoint, and admins: they hand them to who may call it."""
    require_own(who, name, services.endpoints.get(name).created_by)
    return cast(EndpointKeys, services.endpoints.keys.get(name))


def renew_key(name: str, data: JsonBody, services: ServicesDep, who: Who) -> EndpointKeys:
    """Replace the key that ``data`` names as ``key``: `primary` or `secondary`."""
    which = data.get("key", "primary")
    if which not in ("primary", "secondary"):
        raise UsageError(f"{which!r} is no key", hint="primary or secondary")
    with services.endpoints.lock:
        row = services.endpoints.get(name)
        require_own(who, name, row.created_by)
        _new_key(services, row, which)
    _tell_router(services, name)
    return show_keys(name, services, who)


def create_deployment(
    name: str, data: JsonBody, services: ServicesDep, who: Who
) -> DeploymentAnswer:
    """Create a deployment: ``deployment`` is its spec, ``submission`` the job of a replica. It gets
    ``traffic`` percent, or all with ``all_traffic``: at once where nobody has any, else when it is
    ready."""
    row, percent = _deployment(name, data, services, who.name), _percent(data)
    with services.admission_lock, services.endpoints.lock:
        require_own(who, name, services.endpoints.get(name).created_by)
        _require_code(row, services)
        row = services.endpoints.create_deployment(row)
        if percent:
            row = _take_traffic(row, percent, services)
    services.subscriptions.publish(Change.ENDPOINT)
    return _shown(row, services)


def update_deployment(
    name: str, deployment: str, data: JsonBody, services: ServicesDep, who: Who
) -> DeploymentAnswer:
    """Update a deployment: new replicas are ready before the old ones drain. ``data`` is as for
    `create_deployment`, or has ``instance_count``, or ``rollback``: to what it was before, or
    ``changes``: keys of its spec, beside which all stays, the code too."""
    by_hand = data.keys() == {"instance_count"}
    percent = _percent(data)
    made: DeploymentRow | None = None
    if by_hand:
        row = services.endpoints.deployment(name, deployment)
        new_row = row._replace(**_scaled(row, data, services))
        if instances_of(new_row) > instances_of(row):
            _require_capacity(new_row, services)
    elif data.get("rollback"):
        _require_model(services.endpoints.deployment(name, deployment), services)
    elif isinstance(changes := data.get("changes"), dict):
        whole = _changed(services.endpoints.deployment(name, deployment), changes)
        made = _deployment(name, whole, services, who.name)
    else:
        made = _deployment(name, data, services, who.name)
    with services.admission_lock, services.endpoints.lock:
        row = services.endpoints.deployment(name, deployment)
        require_own(who, row.key, row.created_by)
        columns = _scaled(row, data, services) if by_hand else _changes(row, made, services)
        changed = services.endpoints.change(row, **columns)
        if percent:
            changed = _take_traffic(changed, percent, services)
    services.subscriptions.publish(Change.ENDPOINT)
    answer = _shown(changed, services)
    if by_hand and changed.revision != row.revision:
        answer["notes"].append(f"the update of {row.key} that failed is taken back")
    return answer


def _percent(data: Mapping[str, Any]) -> int:
    """The traffic that a deployment is to get. Raises SpecError."""
    percent = 100 if data.get("all_traffic") else data.get("traffic", 0)
    if type(percent) is not int or not 0 <= percent <= 100:
        raise SpecError(Problem("must be a percent, from 0 to 100", "traffic", hint="as 25"))
    return percent


def _take_traffic(row: DeploymentRow, percent: int, services: Services) -> DeploymentRow:
    """It alone gets traffic when it is ready, or at once where nobody has any."""
    services.endpoints.keep_traffic(row.endpoint)
    endpoint = services.endpoints.get(row.endpoint)
    if any(spec_of.parse_endpoint(endpoint.spec).traffic.values()):
        return services.endpoints.change(row, takes_traffic=percent)
    services.endpoints.put(endpoint._replace(spec={**endpoint.spec, "traffic": {row.name: 100}}))
    return row


def _changed(row: DeploymentRow, changes: Mapping[str, Any]) -> dict[str, Any]:
    """A request for the deployment with other keys, and with the code that it has. Raises
    SpecError."""
    spec = {**row.spec, **changes, "name": row.name, "endpoint_name": row.endpoint}
    job = spec_of.replica_job(spec_of.parse_deployment(spec))
    keys = {
        "command",
        *(key for key in ("warm", "environment", "resources", "compute") if key in changes),
    }
    if "model" in changes:
        keys.add("inputs")
    replica = {**row.submission["spec"], **{key: job[key] for key in keys if key in job}}
    return {"deployment": spec, "submission": {**row.submission, "spec": replica}}


def _scaled(row: DeploymentRow, data: Mapping[str, Any], services: Services) -> dict[str, Any]:
    """The columns of another ``instance_count``. An update that failed is taken back: only what
    was before answers. Raises SpecError, Conflict."""
    # Tries of before say nothing of this number.
    columns: dict[str, Any] = {"spec": row.spec, "failures": 0, "next_try": 0.0}
    if _shown(row, services)["state"] == "UpdateFailed":
        columns = _changes(row, None, services)
    if scale_of(row._replace(**columns)) is not None:
        hint = "change scale_settings in its file: allranks deployment update -f FILE"
        raise Conflict(f"the load says how many replicas {row.key} has", hint=hint)
    spec = {**columns["spec"], **data}
    spec_of.parse_deployment(spec)
    return {**columns, "spec": spec}


def _require_model(row: DeploymentRow, services: Services) -> None:
    """Raises Conflict if the model to return to was deleted: its replicas could not start."""
    reference = row._replace(spec=row.previous["spec"]).model if row.previous else ""
    if reference:
        try:
            services.models.versions.row(asset_of(reference, "model"))
        except NotFound:
            hint = f"allranks deployment update {row.name} -e {row.endpoint} -f FILE"
            what = f"{row.key} cannot go back: its model {reference} was deleted"
            raise Conflict(what, hint=hint) from None


def _changes(row: DeploymentRow, made: DeploymentRow | None, services: Services) -> dict[str, Any]:
    """The columns of an update to a new revision; None: to what it was before."""
    ready = {item.revision for item in row.replicas if item.was_ready}
    # None of its revision was ready so far: those of before still answer.
    is_unproven = bool(ready) and row.revision not in ready
    clean: dict[str, Any] = {"failures": 0, "next_try": 0.0, "reason": None, "failed_job": None}
    # With one replica at least: only so is it seen whether the new revision works.
    clean |= {"scaled": row.scaled or None}
    number: dict[str, Any] = {
        "revision": 1 + max([row.revision, *(item.revision for item in row.replicas)])
    }
    before = {key: getattr(row, key) for key in ("spec", "submission", "asset", "revision")}
    if made is not None:
        _require_code(made, services)
        columns = {"spec": made.spec, "submission": made.submission, "asset": made.asset}
        previous = row.previous if is_unproven and row.previous else before
        return {**columns, **number, "previous": previous, **clean}
    if row.previous is None:
        hint = f"allranks deployment update {row.name} -e {row.endpoint} -f FILE"
        raise Conflict(f"{row.key} has no earlier revision that was ready", hint=hint)
    columns = {**number, **row.previous} if is_unproven else {**row.previous, **number}
    # A revision that failed is none to return to.
    return {**columns, "previous": None if is_unproven else before, **clean}


def show_deployment(name: str, deployment: str, services: ServicesDep) -> DeploymentAnswer:
    return _shown(services.endpoints.deployment(name, deployment), services)


def delete_deployment(
    name: str, deployment: str, services: ServicesDep, who: Who
) -> DeploymentAnswer:
    """Delete a deployment. Raises Conflict while it has traffic."""
    with services.endpoints.lock:
        row = services.endpoints.deployment(name, deployment)
        require_own(who, row.key, row.created_by)
        endpoint = services.endpoints.get(name)
        if percent := spec_of.parse_endpoint(endpoint.spec).traffic.get(deployment):
            hint = f'allranks endpoint update {name} --traffic "OTHER=100", or delete the endpoint'
            raise Conflict(f"{row.key} has {percent} percent of the traffic", hint=hint)
        row = services.endpoints.change(row, is_deleted=True)
    _tell_router(services, row.key)
    return _shown(row, services)


# ---------------------------------------------------------------- parts


def _deployment(
    endpoint: str, data: Mapping[str, Any], services: Services, by: str
) -> DeploymentRow:
    """Raises SpecError, and what the job of a replica would be refused with."""
    spec, submission = data.get("deployment"), data.get("submission")
    if not isinstance(spec, dict) or not isinstance(submission, dict):
        raise SpecError(NO_SUBMISSION)
    spec, submission = dict(spec), dict(submission)
    spec["endpoint_name"] = endpoint
    compute = services.endpoints.get(endpoint).spec.get("compute")
    if compute and not spec.get("compute"):
        spec["compute"] = compute.removeprefix("azureml:")
        submission["spec"] = {**Submission.load(submission).spec, "compute": spec["compute"]}
    made = spec_of.parse_deployment(spec)
    Submission.load(submission)
    asset = _asset(made, spec, submission, services)
    row = DeploymentRow(
        endpoint,
        made.name,
        spec,
        submission,
        1,
        time.time(),
        by,
        asset=asset,
    )
    planned = _require_capacity(row, services)
    if spec_of.starts_image(made) and services.clusters.kind_of(planned.engine).images:
        hint = "say what it starts: `command: PROGRAM --port $PORT`"
        raise SpecError(Problem("pods do not start the program of an image", "compute", hint=hint))
    if planned.server_address == ADDRESS:
        hint = f"allranks compute update {planned.compute} --server-address ADDRESS"
        why = "its nodes reach this server only through files, and so no request reaches them"
        raise SpecError(Problem(why, "compute", hint=hint))
    return row


def _require_capacity(row: DeploymentRow, services: Services) -> Plan:
    """The plan of a replica. Raises what its job would be refused with, and SpecError if this
    machine cannot hold all replicas, which count as the nodes of one job."""
    replica = Submission.load(row.submission)
    find: Find = services.records.answering
    where = (services.home, services.clusters, services.environments, services.datastores, find)
    planned = plan(replica._replace(spec={**replica.spec, "name": row.name}), *where)
    scale = scale_of(row)
    replicas = scale.most if scale is not None else instances_of(row)
    if services.clusters.runs_here(planned):
        engine = services.clusters.engine(services.clusters.cluster(planned))
        try:
            engine.admit(planned.gang._replace(nodes=replicas))
        except Refused as error:
            key = "scale_settings.max_instances" if scale is not None else "instance_count"
            why = f"{replicas} replicas do not fit this machine: {error.message}"
            raise SpecError(Problem(why, key, hint="request fewer replicas")) from None
    return planned


def _asset(
    made: spec_of.Deployment, spec: dict[str, Any], submission: dict[str, Any], services: Services
) -> str:
    """The name of a model's file or folder, as it was registered. A label is replaced by the
    version that it stands for now, so that all replicas have the same."""
    if isinstance(made.model, spec_of.InlineModel):
        return PurePath(made.model.path).name
    if (reference := spec_of.model_reference(made.model)) is None:
        return ""
    row = services.models.versions.row(asset_of(reference, "model"))
    if spec_of.loads_model(made):
        files = (entry.path for entry in services.models.versions.manifest(row))
        if problem := script_problem(f"{row.name}:{row.version}", files):
            raise SpecError(problem)
    spec["model"] = f"azureml:{row.name}:{row.version}"
    job = submission["spec"]
    inputs = job.get("inputs")
    if not isinstance(inputs, dict) or not isinstance(inputs.get("model"), dict):
        raise SpecError(NO_SUBMISSION)
    model = {**inputs["model"], "path": spec["model"]}
    submission["spec"] = {**job, "inputs": {**inputs, "model": model}}
    return services.models.versions.registered_as(row)


def _require_code(row: DeploymentRow, services: Services) -> None:
    own = {row.submission["code"]} if row.submission.get("code") else set[str]()
    if not all(map(services.blobs.is_complete, own | {*snapshots(row.submission["spec"])})):
        raise MissingCode("the code has not been uploaded yet", hint="upload it first")


def _check_traffic(made: spec_of.Endpoint, services: Services) -> None:
    names = {row.name for row in _deployments(made.name, services)}
    for key, several in (("traffic", made.traffic), ("mirror_traffic", made.mirror_traffic)):
        for name, percent in several.items():
            if percent and name not in names:
                has = ", ".join(sorted(names)) or "none yet"
                problem = Problem(f"there is no deployment {name!r}", key, hint=f"there are: {has}")
                raise SpecError(problem)


def _tell_router(services: Services, name: str) -> None:
    """Raises ServerError if the router may go on as before the change, which is stored."""
    if not services.subscriptions.publish(Change.ROUTE):
        hint = "it takes effect when the router answers: see server.log in the server's home"
        raise ServerError(
            "the change is stored; the router does not know it yet", where=name, hint=hint
        )


def _new_key(services: Services, row: EndpointRow, *which: str) -> None:
    keys = {
        **services.endpoints.keys.get(row.name),
        **{item: secrets.token_urlsafe(32) for item in which},
    }
    services.endpoints.keys.put(row.name, keys)
    hashes = [hashlib.sha256(key.encode()).hexdigest() for key in keys.values()]
    services.endpoints.put(services.endpoints.get(row.name)._replace(keys=hashes))


def _endpoint(row: EndpointRow, services: Services) -> EndpointAnswer:
    made = spec_of.parse_endpoint(row.spec)
    rows = _deployments(row.name, services)
    deployments = [_shown(item, services) for item in rows]
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


def _replicas(row: DeploymentRow, reports: Mapping[str, Any]) -> list[Replica]:
    """The replicas as the router has them: one drains when no request goes there any more."""
    replicas = []
    for item in row.replicas:
        report = reports.get(item.job, {})
        since = item.drains_since if report.get("drains", True) else None
        replicas.append(
            Replica(item.job, item.revision, bool(report.get("ready")), drains_since=since)
        )
    return replicas


def _reason(
    row: DeploymentRow, replica: Replica, reported: str | None, services: Services
) -> str | None:
    """Why a replica is not ready: what its job waits for, else what the router says of it."""
    job = None if replica.ready else services.records.latest(replica.job)
    was_ready = any(item.was_ready for item in row.replicas if item.job == replica.job)
    if job and job.record.status is JobStatus.RUNNING and job.started_at and not was_ready:
        script = (row.spec.get("code_configuration") or {}).get("scoring_script")
        loads = script and (reported or NOT_YET) == NOT_YET
        what = f"init() of {script} runs" if loads else f"{reported or NOT_YET}; it runs"
        seconds = int(time.time() - job.started_at)
        return f"{what} since {seconds} s; readiness_probe allows {ready_within(row):g} s"
    if job is None or job.record.status in (JobStatus.RUNNING, *TERMINAL):
        return reported
    reason = status_reason(job, services.home)
    if "GPU" in reason and any(item.was_ready for item in row.replicas):
        reason += "; those of the replicas that answer are kept until new ones do"
    return reason or reported


def _host(name: str, services: Services) -> str | None:
    job = services.records.latest(name)
    return host_of(job, 0) if job is not None else None


def _answering_model(row: DeploymentRow, replicas: list[Replica]) -> str:
    """That of the newest replica that answers; while none does, that of the specification."""
    jobs = {item.job for item in replicas if item.ready and item.drains_since is None}
    answering = [item for item in row.replicas if item.job in jobs]
    newest = max(answering, key=lambda item: item.revision, default=row)
    return newest.model


def _deployments(endpoint: str, services: Services) -> list[DeploymentRow]:
    return [row for row in services.endpoints.deployments(endpoint) if not row.is_deleted]


def _counts(row: DeploymentRow, counts: Mapping[str, Any], services: Services) -> RequestCounts:
    totals = {key: value for key, value in counts.items() if key not in _INNER}
    rate = services.endpoints.samples.rate(row.key)
    return cast(RequestCounts, {**totals, "rate": round(rate, 3)})


def _shown(row: DeploymentRow, services: Services) -> DeploymentAnswer:
    counts: dict[str, Any] = services.endpoints.counts.get(row.key, {})
    reports = counts.get("replicas", {})
    instances = instances_of(row)
    replicas = _replicas(row, reports)
    now = state(replicas, row.revision, instances, row.failures)
    left = row.next_try - time.time()
    return {
        "name": row.name,
        "endpoint": row.endpoint,
        "state": cast("DeploymentState", now),
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
        "notes": spec_of.notes(row.spec),
        "spec": row.spec,
    }
