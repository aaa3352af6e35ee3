"""Routes for people: the CLI and the SDK. Who asks has shown the home's token (see app)."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field
from starlette.concurrency import run_in_threadpool

from allranks import clock
from allranks.errors import Conflict, NotFound
from allranks.events import Event, Kind
from allranks.plan.distributions.topology import ranks, world
from allranks.plan.job.services import service_notes
from allranks.server.auth.roles import Who, hold_to_own
from allranks.server.dependencies import Services, services
from allranks.server.http.public_listener import PORT, PublicAddress
from allranks.server.http.request_limits import Count
from allranks.server.jobs import explain, view
from allranks.server.jobs.view import submitter
from allranks.server.routes.job_stream import Wanted, follow, until_ended
from allranks.server.routes.metrics import measured
from allranks.server.submission import continuation
from allranks.server.submission import restart as restarting
from allranks.server.submission.submit import Submission, notes, submit
from allranks.spec.job import parse
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.job_rows import JobRow
from allranks.version import __version__

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1")


class Wide(BaseModel):
    """As ``front.Where``."""

    host: str | None
    port: Annotated[int, Field(gt=0, lt=65536)] = PORT
    certificate: str = ""
    tls: bool = True


@router.get("/server")
def server(with_: With, who: Who) -> dict[str, Any]:
    """Which server this is, and who asks."""
    return {
        "pid": os.getpid(),
        "version": __version__,
        "home": str(with_.home.root),
        "live_jobs": len(with_.records.live()),
        "user": who.name,
        "role": str(who.role),
    }


@router.post("/server/stop")
def stop(with_: With, all: bool = False) -> dict[str, Any]:
    """Cancel the jobs of this machine, or ``all``; the caller ends the server once they have."""
    live = with_.records.live()
    names = [row.name for row in live if all or with_.clusters.runs_here(row.plan)]
    for name in names:
        _cancel(with_, name)
    return {"canceled": names, "left": len(live) - len(names)}


@router.put("/server/front")
async def front(wanted: Wide, with_: With) -> dict[str, Any]:
    """Stand open on an address that others can call, too, from now on; null: on none."""
    if wanted.host is None:
        await with_.front.close(for_good=True)
        return {"url": None, "fingerprint": ""}
    return await with_.front.open(
        PublicAddress(wanted.host, wanted.port, wanted.certificate, wanted.tls)
    )


@router.post("/jobs", status_code=201)
def create(data: Annotated[Any, Body()], with_: With, who: Who) -> dict[str, Any]:
    """Submit a job. Refused ones (400, 409, 422) leave nothing behind."""
    made, after = Submission.load(data), None
    if made.continues:
        after = continuation.ended(with_.records.get(made.continues))
        made = made._replace(previous=continuation.end_of(after))
    row, carried = submit(made, with_, who.name, after=after)
    noted = notes(row.plan, with_.clusters.kinds[row.plan.engine])
    if row.spec.get("services"):
        noted += service_notes(row.name, parse(row.spec).to_dict()["services"])
    return {**_shown(row, with_), "notes": noted, "carried": view.carried(carried)}


@router.get("/jobs/{name}")
def show(name: str, with_: With) -> dict[str, Any]:
    row = with_.records.get(name)
    return {**_shown(row, with_), **measured(row, with_), "state": with_.states.brief(row)}


@router.get("/jobs/{name}/explanation")
def explanation(name: str, with_: With) -> dict[str, Any]:
    """Why a job failed, at length. Raises Conflict for one that has not."""
    return explain.full_explanation(with_.records.get(name), with_.records, with_.home, with_.blobs)


@router.get("/jobs/{name}/events")
def events(name: str, with_: With, after: Count = 0) -> list[dict[str, Any]]:
    with_.records.get(name)
    return [view.event(told) for told in with_.records.events(name, after)]


@router.post("/jobs/{name}/cancel")
def cancel(name: str, with_: With, who: Who, force: bool = False) -> dict[str, Any]:
    """Ask for the end of a job; it is Canceled once nothing of it runs. Twice is once. With
    ``force`` a cluster that does not answer is not waited for: when it does again, what is left
    there is ended."""
    hold_to_own(who, name, submitter(with_.records.get(name).spec))
    _cancel(with_, name, force)
    return _shown(with_.records.get(name), with_)


@router.post("/jobs/{name}/preempt")
def preempt(
    name: str,
    with_: With,
    who: Who,
    data: Annotated[dict[str, Any], Body()],
    node: Count | None = None,
) -> dict[str, Any]:
    """Take the job its nodes away, or one of them, as its cluster might: a rehearsal. ``data`` may
    say ``by`` whom."""
    row = with_.records.get(name)
    hold_to_own(who, name, submitter(row.spec))
    record = row.record
    if record.status not in (JobStatus.PREPARING, JobStatus.RUNNING):
        ended = f"it has ended: run it again with allranks job restart {name}"
        hint = ended if record.status in TERMINAL else "wait until it runs"
        raise Conflict(f"{name} is {record.status}: nothing can be taken from it", hint=hint)
    if node is not None and node >= len(record.nodes):
        hint = f"its nodes are 0 to {len(record.nodes) - 1}"
        raise NotFound(f"{name} has no node {node}", hint=hint)
    by = str(data.get("by") or "somebody")
    told = {"by": by, "message": f"{by} asked for it: allranks job preempt"}
    asked = Event(Kind.PREEMPT_ASKED, clock.now(), record.launch, record.attempt, node, data=told)
    with_.records.append(name, [asked])
    with_.loops.wake(name)
    return _shown(with_.records.get(name), with_)


@router.post("/jobs/{name}/kill")
def kill(
    name: str, with_: With, who: Who, rank: Count, data: Annotated[dict[str, Any], Body()]
) -> dict[str, Any]:
    """Have a rank of a job that runs ended by SIGKILL: a rehearsal. ``data`` may say ``by``
    whom."""
    row = with_.records.get(name)
    hold_to_own(who, name, submitter(row.spec))
    record = row.record
    if record.status is not JobStatus.RUNNING:
        hint = f"it must run: allranks job show {name}"
        raise Conflict(f"{name} is {record.status}: no rank of it can be killed", hint=hint)
    found = next((each for each in ranks(row.plan.task) if each.rank == rank), None)
    if found is None:
        hint = f"its ranks are 0 to {world(row.plan.task) - 1}"
        raise NotFound(f"{name} has no rank {rank}", hint=hint)
    by = str(data.get("by") or "somebody")
    told = {"by": by, "message": f"{by} asked for it"}
    at, attempt = clock.now(), record.attempt
    asked = Event(Kind.KILL_ASKED, at, record.launch, attempt, found.node, rank, data=told)
    with_.records.append(name, [asked])
    with_.loops.wake(name)
    return _shown(with_.records.get(name), with_)


@router.post("/jobs/{name}/restart", status_code=201)
def restart(
    name: str, with_: With, who: Who, fresh: bool = False, data: Annotated[Any, Body()] = None
) -> dict[str, Any]:
    """Run an ended job again, as a new one; it goes on from the outputs and the state that this has
    left, unless it is to be ``fresh``. ``data``: other code for it."""
    row = with_.records.get(name)
    hold_to_own(who, name, submitter(row.spec))
    made, carried = restarting.restart(
        row, with_, who.name, fresh=fresh, code=restarting.Code.load(data)
    )
    return {**_shown(made, with_), "carried": view.carried(carried)}


@router.get("/jobs/{name}/wait")
async def wait(
    name: str, with_: With, timeout: Annotated[float, Field(ge=0)] = 20.0
) -> dict[str, Any]:
    """The job, once it has ended or ``timeout`` seconds (at most 60) have passed."""
    row = await until_ended(with_, name, min(timeout, 60.0))
    return await run_in_threadpool(_shown, row, with_)


@router.post("/jobs/{name}/stream")
def stream(name: str, with_: With, wanted: Wanted) -> Response:
    """Lines of JSON: what ranks print and how the job fares, from ``positions`` on, to its end."""
    with_.records.get(name)
    lines: AsyncIterator[bytes] = follow(with_, name, wanted)
    return StreamingResponse(lines, media_type="application/x-ndjson")


@router.post("/blobs/missing")
def missing(digests: Annotated[list[str], Body()], with_: With) -> list[str]:
    """Which of these blobs are not here, in their order."""
    return [digest for digest in digests if not with_.blobs.has(digest)]


@router.post("/blobs/discard", status_code=204)
def discard(digests: Annotated[list[str], Body()], with_: With) -> None:
    """Remove those of these blobs that no job needs: their submission was broken off."""
    with with_.coming:
        codes = {row.code for row in with_.records.uses() if row.code is not None}
        needed = codes.union(*(with_.blobs.chunk_digests(code) for code in codes))
        for digest in {*digests} - needed:
            with_.blobs.path(digest).unlink(missing_ok=True)


@router.put("/blobs/{digest}", status_code=204)
async def blob(digest: str, with_: With, request: Request) -> None:
    """Store a blob under the hash of its content."""
    with with_.blobs.receive(digest) as take:
        async for piece in request.stream():
            take(piece)


def _shown(row: JobRow, with_: Services) -> dict[str, Any]:
    return view.job(row, with_.home, with_.annotations.of(row.id))


def _cancel(with_: Services, name: str, force: bool = False) -> None:
    record = with_.records.get(name).record
    if record.status in TERMINAL or (record.canceled and record.given_up >= force):
        return
    data = {"force": True} if force else {}
    asked = Event(Kind.CANCEL_ASKED, clock.now(), record.launch, record.attempt, data=data)
    with_.records.append(name, [asked])
    with_.loops.wake(name)
