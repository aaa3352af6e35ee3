"""The phase of a job from the queue to its end, and since when. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from allranks.statuses import JobStatus, NodeState

if TYPE_CHECKING:
    from allranks.core.lifecycle.decide import (
        Job,  # agents import this module and do not need it
    )

# Begins what a node reports while a full disk does not take what its ranks wrote.
WAITS = "waits for space"


class Phase(StrEnum):
    """From the queue to the end. Agents report which part of PREPARING takes long."""

    QUEUED = "queued"
    PROVISIONING = "provisioning"
    PREPARING = "preparing"
    CODE = "code"
    DATA = "data"
    STATE = "state"
    ENVIRONMENT = "environment"
    IMAGE = "image"
    STARTING = "starting"
    RUNNING = "running"
    FINALIZING = "finalizing"


PREPARATION = frozenset(
    {Phase.PREPARING, Phase.CODE, Phase.DATA, Phase.STATE, Phase.ENVIRONMENT, Phase.IMAGE}
)


class Current(NamedTuple):
    """``since`` is in seconds since the epoch; None if unknown."""

    phase: Phase
    since: float | None = None


def current(job: Job, created_at: float) -> Current | None:
    """The current phase; None for an ended job."""
    if job.status in (JobStatus.NOT_STARTED, JobStatus.QUEUED):
        began = created_at if job.attempt == 1 else job.submitted_at
        return Current(Phase.QUEUED, began)
    if job.status is JobStatus.PROVISIONING:
        return Current(Phase.PROVISIONING)
    if job.status is JobStatus.PREPARING:
        return _preparing(job)
    if job.status is JobStatus.RUNNING:
        begun = not any(node.state is NodeState.READY for node in job.nodes)
        return Current(Phase.RUNNING if begun else Phase.STARTING, job.went_at)
    if job.status is JobStatus.FINALIZING:
        return Current(Phase.FINALIZING, job.closing_at)
    return None


def _preparing(job: Job) -> Current:
    """The phase of the first node that is not ready."""
    for node in job.nodes:
        if node.state is NodeState.SETUP and node.phase in PREPARATION:
            return Current(Phase(node.phase), node.phase_at or None)
    # An attempt on the same nodes begins when the previous one has ended, at an unknown time.
    return Current(Phase.PREPARING, job.up_at if job.attempt == 1 else None)
