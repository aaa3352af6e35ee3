"""Why a job failed; of a sweep or pipeline, why the first of its jobs that failed did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, cast

from allranks.api import routes
from allranks.errors import AllranksError
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.jobs import FailureExplanation, StackGroup, StacksAnswer, StepExplanation
    from allranks.api.metrics import ShownJob

# Pipelines and sweeps within one another.
_DEEP = 5


class FailedChild(NamedTuple):
    """``what`` it is of its parent, such as ``step train``, from the outermost in."""

    job: ShownJob
    what: list[str]
    explained: FailureExplanation | StepExplanation | None
    stack: StackGroup | None
    failures: int


async def explanation(
    session: Session, job: ShownJob
) -> FailureExplanation | StepExplanation | None:
    """Why it failed, with evidence; None if it has not."""
    if job["status"] != "Failed" or job["type"] == "pipeline":
        return None
    try:
        explained = await session.get(routes.job_explanation, job["name"])
        return cast("FailureExplanation | StepExplanation", explained)
    except AllranksError:
        return None


async def failed_child(session: Session, job: ShownJob) -> FailedChild | None:
    """The first job of a sweep or pipeline that failed; of those within, the innermost."""
    failed = _failed(job)
    count, what, child = len(failed), list[str](), job
    try:
        while failed and len(what) < _DEEP:
            name, where = failed[0]
            what.append(where)
            child = await session.get(routes.show_job, name)
            failed = _failed(child)
    except AllranksError:  # it was deleted
        return None
    if not what:
        return None
    explained = await explanation(session, child)
    return FailedChild(child, what, explained, await culprit(session, child), count)


def _failed(job: ShownJob) -> list[tuple[str, str]]:
    """The names of its failed jobs, and what they are of it."""
    trials = sorted(job.get("trials", ()), key=lambda trial: trial["number"])
    children = [(trial["job"], f"trial {trial['number']}") for trial in trials if _is_failed(trial)]
    steps = job["steps"] if job["type"] == "pipeline" else {}
    children += [(s["job"] or "", f"step {name}") for name, s in steps.items() if _is_failed(s)]
    return [(name, what) for name, what in children if name]


def _is_failed(child: Any) -> bool:
    return bool(child["status"] == "Failed")


async def culprit(session: Session, job: ShownJob) -> StackGroup | None:
    """The stack of the rank for which a job that hung was waiting."""
    error = job["error"]
    if error is None or error.get("reason") != "HANG":
        return None
    try:
        answer: StacksAnswer = (await session.call(routes.job_stacks, job["name"])).json()
    except AllranksError:
        return None
    return culprit_of(answer, error["rank"])


def culprit_of(answer: StacksAnswer, rank: int | None) -> StackGroup | None:
    """The group of the rank that is elsewhere than the others, or of ``rank``, or the largest."""
    odd = answer["odd"]
    culprit = rank if odd is None else odd["rank"]
    groups = [group for group in answer["groups"] if group["stack"]] or answer["groups"]
    mine = [group for group in groups if culprit in group["ranks"]]
    return next(iter(mine or groups), None)
