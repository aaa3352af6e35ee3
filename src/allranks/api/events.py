"""The data of a job's events, by their kind. Notes are free of form but for their message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NotRequired

from typing_extensions import TypedDict

from allranks.api.common import Document, Packed
from allranks.api.jobs import ErrorCollective, JobError
from allranks.events import Kind


class NoData(TypedDict):
    pass


class CreationData(TypedDict):
    """``digest``: of the plan; ``restarts`` and ``continues``: the job that it was made from."""

    digest: str
    restarts: NotRequired[str]
    continues: NotRequired[str]


class SubmittedData(TypedDict):
    """The gang's key, and what the engine calls it."""

    key: str
    ref: str


class RefusedData(TypedDict):
    message: str
    hint: str | None


class SeenData(TypedDict):
    """The gang as the engine reports it, and why it is so, in the engine's words; ``ref``: the job
    that keeps the nodes on which the gang runs."""

    state: str
    why: str
    reason: str | None
    ref: NotRequired[str]


class ClosingData(TypedDict):
    """``purpose``: what follows, `finish`, `regroup`, `relaunch` or `resubmit`; ``hung``: the
    failure of a job that hangs."""

    purpose: str
    reason: str
    hung: NotRequired[Packed]


class RequestedData(TypedDict):
    """Who requested a preemption or a kill, or entered and to do what."""

    by: str
    message: str


class LostData(TypedDict):
    """``heard``: when the node's agent last called, in seconds since the epoch."""

    why: str
    heard: NotRequired[float]


class OutputAssets(TypedDict, total=False):
    """The data assets of a completed job, by output, and notes on those that were not made."""

    assets: dict[str, str]
    notes: list[str]


class FinishedData(OutputAssets):
    """How the job ended. ``is_imported``: a run that goes on elsewhere has ended anew."""

    status: str
    exit_code: int | None
    error: JobError | None
    is_imported: NotRequired[bool]


class HelloData(TypedDict):
    """``version``: of the agent's code; those of 0.1.0 do not say it."""

    pid: int
    version: NotRequired[str]


class ReadyData(TypedDict):
    """Where a node is: see `core.plan.Place`."""

    address: str
    host: str
    ports: list[int]
    interface: NotRequired[str]
    cpus: NotRequired[int | None]
    rdma: NotRequired[bool | None]
    python: NotRequired[dict[str, str | int | None] | None]
    end: NotRequired[float | None]


class StartedData(TypedDict):
    ranks: list[int]


class RankEndedData(TypedDict):
    """``behind_pipe``: the program that failed was not the last of a pipe, so that output which
    the last one passed on may follow its traceback."""

    code: int
    signal: str | None
    ended_at: float
    behind_pipe: NotRequired[bool]


class ReleasedData(RequestedData):
    """``retry``: another attempt follows."""

    retry: bool


class SlowRankData(TypedDict, total=False):
    """A NOTE about a rank, or a node, for which the others wait this ``share`` of the time since
    ``since``; or that it is ``over``. ``evidence``: sentences on what may slow it down."""

    message: str
    hint: str
    share: float
    since: float
    evidence: list[str]
    over: bool


class EndedData(TypedDict):
    """Why the attempt ended on a node. Of a rank that failed: its exit code, the end of its output,
    facts about the node, and the collective that failed. ``passing``: it may not happen again."""

    reason: str
    message: str
    hint: NotRequired[str]
    passing: NotRequired[bool]
    code: NotRequired[int | None]
    signal: NotRequired[str | None]
    failed_at: NotRequired[float]
    tail: NotRequired[list[str]]
    facts: NotRequired[Document]
    collective: NotRequired[ErrorCollective]


class HeldData(EndedData):
    """How an attempt failed on a node that keeps it as it is; ``until``: seconds since the
    epoch."""

    until: float


DATA: Mapping[Kind, Any] = {
    Kind.CREATED: CreationData,
    Kind.SUBMITTED: SubmittedData,
    Kind.REFUSED: RefusedData,
    Kind.SEEN: SeenData,
    Kind.GO: NoData,
    Kind.CLOSING: ClosingData,
    Kind.STOPPING: Document,
    Kind.REGROUPED: NoData,
    Kind.RELAUNCHED: Document,
    Kind.FINISHED: FinishedData,
    Kind.CANCEL_ASKED: Document,
    Kind.LOST: LostData,
    Kind.PREEMPT_ASKED: RequestedData,
    Kind.KILL_ASKED: RequestedData,
    Kind.RELEASED: ReleasedData,
    Kind.ENTERED: RequestedData,
    Kind.NOTICE: RequestedData,
    Kind.RESUMED: NoData,
    Kind.HELLO: HelloData,
    Kind.READY: ReadyData,
    Kind.STARTED: StartedData,
    Kind.RANK_ENDED: RankEndedData,
    Kind.TAKEN: Document,
    Kind.WORKED: NoData,
    Kind.HELD: HeldData,
    Kind.ENDED: EndedData,
    Kind.DRAINED: NoData,
    Kind.BYE: NoData,
    Kind.NOTE: Document,
}
