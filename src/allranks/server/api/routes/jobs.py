"""Routes for jobs, blobs and the server itself."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from allranks import folder_trees
from allranks.api import jobs as api
from allranks.api.metrics import ShownJob
from allranks.api.server import PublicEndpoint, ServerAnswer, StopAnswer
from allranks.core.distributions.topology import ranks, world
from allranks.core.job.report import report
from allranks.core.lifecycle.decide import held_until
from allranks.errors import Conflict, NotFound, UsageError
from allranks.events import Kind
from allranks.masking import masked
from allranks.server.api.routes.job_stream import follow, until_ended
from allranks.server.api.routes.metrics import measured, peaks_of
from allranks.server.api.routes.ui import page
from allranks.server.arguments import BODY
from allranks.server.auth.roles import Who, require_own
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.http.content import LINES, Content
from allranks.server.http.public_listener import PORT, PublicAddress
from allranks.server.http.request_limits import FEW, Count
from allranks.server.jobs import view
from allranks.server.jobs.services import services_of
from allranks.server.jobs.slow_ranks import slow_ranks_of
from allranks.server.jobs.stream import StreamRequest
from allranks.server.jobs.view import submitter
from allranks.server.loop.subscriptions import Change
from allranks.server.parents import view as parents
from allranks.server.submission import continuation
from allranks.server.submission.submit import (
    Submission,
    job_and_plan_notes,
    notes,
    submit,
    submit_all,
)
from allranks.spec.ignored_keys import job_notes
from allranks.spec.job_type import job_type
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.jobs.job_rows import COMMAND
from allranks.version import __version__

# Jobs created in one transaction; agents' reports wait for its end, about a second.
_MOST_AT_ONCE = 1000


class Address(BaseModel):
    """See ``PublicAddress``; ``host`` null closes the public listener."""

    host: str | None
    port: Annotated[int, Field(gt=0, lt=65536)] = PORT
    certificate: str = ""
    tls: bool = True


def server(services: ServicesDep, who: Who) -> ServerAnswer:
    """The server, and the calling user."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "home": str(services.home.root),
        "live_jobs": len(services.records.live()),
        "user": who.name,
        "role": str(who.role),
    }


def stop(services: ServicesDep, all: bool = False) -> StopAnswer:
    """Cancel the jobs of this machine, or ``all``; the caller stops the server when they end."""
    services.subscriptions.publish(Change.STOP)
    live = services.records.live()
    names = [row.name for row in live if all or services.clusters.runs_here(row.plan)]
    for name in names:
        services.cancel(name, why="the server was stopped")
    return {"canceled": names, "left": len(live) - len(names)}


def would_stop(services: ServicesDep, all: bool = False) -> list[str]:
    """The jobs that ``stop`` would cancel for good: no children, and no replicas, which come back
    with the next server."""
    replicas = {item.job for row in services.endpoints.deployments() for item in row.replicas}
    return [
        row.name
        for row in services.records.live()
        if (all or services.clusters.runs_here(row.plan))
        and row.parent is None
        and row.name not in replicas
    ]


async def front(address: Address, services: ServicesDep) -> PublicEndpoint:
    """Open the public listener on an address, or close it."""
    if address.host is None:
        services.public_listener.leave(for_good=True)
        return {"url": None, "fingerprint": ""}
    return await services.public_listener.open(
        PublicAddress(address.host, address.port, address.certificate, address.tls)
    )


def create(data: Annotated[Any, BODY], services: ServicesDep, who: Who) -> api.CreatedJob:
    """Submit a job. A refused job (400, 409, 422) leaves no trace."""
    made, after = Submission.load(data), None
    if job_type(made.spec) != COMMAND:
        from allranks.server.parents.submit import create_parent  # lazy: most jobs are commands

        row, noted = create_parent(made, services, who.name)
        return {
            **parents.job(row, services),
            "notes": noted,
            "carried": None,
            "page": page(row.name),
        }
    if made.continues:
        after = continuation.ended(services.records.with_ranks(made.continues))
        made = made._replace(previous=continuation.end_of(after))
    row, carried = submit(made, services, who.name, after=after)
    kind = services.clusters.kind_of(row.plan.engine)
    noted = job_and_plan_notes(row.name, row.spec, row.plan, kind)
    return {
        **parents.created(row, services),
        "notes": noted,
        "carried": view.carried(carried),
        "page": page(row.name),
    }


def check(data: Annotated[Any, BODY], services: ServicesDep) -> list[str]:
    """Check a submission without making a job of it; returns notes. Refuses what submitting does
    (400, 409, 422), but for local data and code, which need not be here."""
    from allranks.server.parents import check  # lazy: as above

    return check.check(Submission.load(data), services.planning())


def create_list(
    data: Annotated[Any, BODY], services: ServicesDep, who: Who
) -> list[api.CreatedJob]:
    """Submit command jobs: all, or none (400, 409, 422)."""
    if not isinstance(data, list) or len(data) > _MOST_AT_ONCE:
        message = f"expected a list of at most {_MOST_AT_ONCE} jobs"
        raise UsageError(message, hint="submit several lists")
    rows = submit_all([Submission.load(each) for each in data], services, who.name)
    kinds = services.clusters.kinds
    return [
        {
            **parents.created(row, services),
            "notes": [*notes(row.plan, kinds[row.plan.engine]), *job_notes(row.spec)],
            "carried": None,
            "page": page(row.name),
        }
        for row in rows
    ]


def show(name: str, services: ServicesDep, peaks: bool = False) -> ShownJob:
    """A job; ``peaks``: with the most that it used, once it has ended. That reads all points."""
    row = services.records.get(name)
    if row.type != COMMAND:
        return {**parents.job(row, services, summary=True), "page": page(row.name)}
    answer: ShownJob = {
        **parents.job(row, services),
        **measured(row, services),
        "state": services.states.brief(row),
        "working_folder": services.working_folders.brief(row),
        "services": services_of(row, services.records, with_pages=page(name) is not None),
        "slow_ranks": slow_ranks_of(row, services.records),
        "has_outputs": bool(row.plan.task.outputs) or _has_files(row.name, services),
        "page": page(row.name),
    }
    if peaks:
        answer["peaks"] = peaks_of(row, services) if row.record.status in TERMINAL else []
    return answer


def _has_files(job: str, services: Services) -> bool:
    """Whether there is any file in the job's own outputs."""
    return any(files for _, _, files in folder_trees.walk(services.home.jobs / job / "artifacts"))


def explanation(
    name: str, services: ServicesDep
) -> api.FailureExplanation | api.PipelineExplanation | api.StepExplanation:
    """Why a job failed, in detail; of a pipeline, why each step ran or did not. Raises Conflict for
    another job that has not failed."""
    from allranks.server.jobs import explain  # lazy: diagnosis and pipelines take long to import
    from allranks.server.parents.pipeline.view import (  # lazy: as above
        explain_pipeline,
        explain_step,
    )

    row = services.records.get(name)
    if row.type == "pipeline":
        return explain_pipeline(row, services)
    if row.parent is not None and row.record.status is JobStatus.COMPLETED:
        return explain_step(row)
    row = services.records.with_ranks(name)
    return explain.full_explanation(row, services.records, services.home, services.blobs)


def show_plan(
    name: str, services: ServicesDep, first: Count = 0, most: Count | None = None
) -> api.PlanAnswer:
    """What its engine received and what each rank gets, as `--dry-run --json` prints it; of at
    most ``most`` ranks, from number ``first``."""
    row = services.records.with_ranks(name)
    gang = row.plan.gang._replace(env=masked(row.plan.gang.env))
    engine = services.clusters.engine(services.clusters.cluster(row.plan))
    some = slice(first, None if most is None else first + most)
    return report(row.plan, engine.render(gang), row.spec, some)


def events(name: str, services: ServicesDep, after: Count = 0) -> list[api.EventAnswer]:
    services.records.get(name)
    return [view.event(stored) for stored in services.records.events(name, after)]


def cancel(name: str, services: ServicesDep, who: Who, force: bool = False) -> api.JobAnswer:
    """Cancel a job; it becomes Canceled once nothing of it runs. Idempotent. With ``force`` do not
    wait for a cluster that does not answer; its gang is stopped when it answers again."""
    require_own(who, name, submitter(services.records.get(name).spec))
    services.cancel(name, force)
    return parents.job(services.records.get(name), services)


def preempt(
    name: str,
    services: ServicesDep,
    who: Who,
    data: JsonBody,
    node: Count | None = None,
) -> api.JobAnswer:
    """Preempt a job or one of its nodes as its cluster might, to test it. ``data`` may have ``by``,
    who requested it."""
    row = services.records.with_ranks(name)
    require_own(who, name, submitter(row.spec))
    record = row.record
    if record.status not in (JobStatus.PREPARING, JobStatus.RUNNING):
        ended = f"it has ended; to run it again: allranks job restart {name}"
        hint = ended if record.status in TERMINAL else "wait until it runs"
        raise Conflict(f"{name} is {record.status} and cannot be preempted", hint=hint)
    if node is not None and node >= len(record.nodes):
        hint = f"use a node from 0 to {len(record.nodes) - 1}"
        raise NotFound(f"{name} has no node {node}", hint=hint)
    by = str(data.get("by") or "somebody")
    details = {"by": by, "message": f"requested by {by}: allranks job preempt"}
    services.records.append(name, [row.event(Kind.PREEMPT_ASKED, node=node, data=details)])
    services.loops.wake(name)
    return parents.job(services.records.get(name), services)


def kill(name: str, services: ServicesDep, who: Who, rank: Count, data: JsonBody) -> api.JobAnswer:
    """Kill a rank of a running job by SIGKILL, to test it. ``data`` may have ``by``, who requested
    it."""
    row = services.records.with_ranks(name)
    require_own(who, name, submitter(row.spec))
    record = row.record
    if record.status is not JobStatus.RUNNING:
        hint = f"wait until it runs: allranks job show {name}"
        raise Conflict(f"{name} is {record.status}, not running", hint=hint)
    target = next((each for each in ranks(row.plan.task) if each.rank == rank), None)
    if target is None:
        hint = f"use a rank from 0 to {world(row.plan.task) - 1}"
        raise NotFound(f"{name} has no rank {rank}", hint=hint)
    by = str(data.get("by") or "somebody")
    details = {"by": by, "message": f"requested by {by}"}
    event = row.event(Kind.KILL_ASKED, node=target.node, rank=rank, data=details)
    services.records.append(name, [event])
    services.loops.wake(name)
    return parents.job(services.records.get(name), services)


def release(name: str, services: ServicesDep, who: Who, retry: bool = False) -> api.JobAnswer:
    """End a held job, or with ``retry`` start its next attempt."""
    row = services.records.with_ranks(name)
    require_own(who, name, submitter(row.spec))
    if held_until(row.record) is None:
        hint = f"see allranks job show {name}"
        raise Conflict(f"{name} is not held: it is {row.record.status}", hint=hint)
    message = "released for another attempt" if retry else "released"
    data = {"by": who.name, "message": message, "retry": retry}
    services.records.append(name, [row.event(Kind.RELEASED, data=data)])
    services.loops.wake(name)
    return parents.job(services.records.get(name), services)


def restart(
    name: str,
    services: ServicesDep,
    who: Who,
    resume: bool = False,
    fresh: bool = False,
    data: Annotated[Any, BODY] = None,
) -> api.RestartedJob:
    """Run an ended job again as a new job. If it did not complete, the new job goes on from its
    outputs and state; a completed one runs anew. ``resume`` and ``fresh`` choose otherwise, and
    ``restarted`` in the reply says which. ``data``: other code, and in ``set`` changes of the spec,
    each ``a.b=c``. A sweep or pipeline that goes on keeps its name and its completed jobs; ``data``
    may raise the ``limits`` of a sweep."""
    from allranks.server.parents.restart import restart_parent  # lazy: imports sweeps
    from allranks.server.submission import restart as restarting  # lazy: imports YAML

    row = services.records.get(name)
    require_own(who, name, submitter(row.spec))
    overrides = data.pop("set", []) if isinstance(data, dict) else []
    if not isinstance(overrides, list) or not all(
        isinstance(override, str) for override in overrides
    ):
        hint = 'write "set": ["KEY=VALUE"]'
        raise UsageError("`set` is not a list of `KEY=VALUE`", where="set", hint=hint)
    if isinstance(data, dict) and data.get("limits") and row.type != "sweep":
        raise UsageError(f"{name} is not a sweep", hint="leave --trials and --concurrent out")
    choice = {"resume": resume, "fresh": fresh}
    if row.type != COMMAND:
        made = restart_parent(row, services, who.name, data or {}, **choice, overrides=overrides)
    else:
        code = restarting.Code.load(data or None)
        made = restarting.restart(row, services, who.name, **choice, code=code, overrides=overrides)
    return {
        **parents.job(made.row, services),
        "notes": [*made.notes],
        "carried": view.carried(made.carried),
        "restarted": {"job": name, "resumed": made.resumed, "message": made.sentence},
    }


async def wait(
    name: str, services: ServicesDep, timeout: Annotated[float, Field(ge=0)] = 20.0
) -> api.JobAnswer:
    """The job, once it has ended or ``timeout`` seconds (at most 60) have passed."""
    row = await until_ended(services, name, min(timeout, 60.0))
    return await run_in_threadpool(parents.job, row, services)


def stream(
    name: str, services: ServicesDep, body: StreamRequest
) -> Annotated[Response, Content(api.JobLine | api.LogLine, LINES)]:
    """The job's output and status as lines of JSON, until it ends."""
    parent = services.records.get(name).type != COMMAND
    lines: AsyncIterator[bytes]
    if parent:
        from allranks.server.parents.stream import follow_children  # lazy: as in `create`

        lines = follow_children(services, name, body)
    else:
        lines = follow(services, name, body)
    return StreamingResponse(lines, media_type="application/x-ndjson")


def missing(digests: Annotated[list[str], BODY], services: ServicesDep) -> list[str]:
    """The blobs that the server does not have, in the given order."""
    lacking = {digest for digest in {*digests} if not services.blobs.has(digest)}
    return [digest for digest in digests if digest in lacking]


def discard(digests: Annotated[list[str], BODY, FEW], services: ServicesDep) -> None:
    """Remove those blobs that no job needs, after an interrupted submission."""
    with services.admission_lock:
        codes = {each for row in services.records.uses() for each in row.codes()}
        codes |= services.kept_codes()
        needed = codes.union(*(services.blobs.chunk_digests(code) for code in codes))
        for digest in {*digests} - needed:
            services.blobs.discard(digest)


async def blob(digest: str, services: ServicesDep, request: Request) -> None:
    """Store a blob under the hash of its content."""
    with services.blobs.receive(digest) as take:
        async for piece in request.stream():
            take(piece)
