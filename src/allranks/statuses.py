"""The closed sets: what a job and a node can be, why an attempt ended, and all that follows.

Nothing here is looked up by ``if``: outcome, blame, restart class, sentence and hint of a
``Reason`` come from one total table, which a test holds complete.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class JobStatus(StrEnum):
    """Where a job is; Azure ML's words, shown everywhere as they are here."""

    NOT_STARTED = "NotStarted"
    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    PREPARING = "Preparing"
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED})


class NodeState(StrEnum):
    """Where a node is in the current attempt. Agents say all but LOST, which is the server's."""

    ABSENT = "ABSENT"
    SETUP = "SETUP"
    READY = "READY"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    EXITED = "EXITED"
    LOST = "LOST"


class GangState(StrEnum):
    """What an engine last said of a gang. ABSENT: never submitted in this launch."""

    ABSENT = "absent"
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    UP = "up"
    GONE = "gone"
    UNKNOWN = "unknown"


class Blame(StrEnum):
    NOBODY = "nobody"
    USER = "user"
    INFRASTRUCTURE = "infrastructure"
    PLATFORM = "platform"


class Reason(StrEnum):
    """Why a node's attempt, and with the earliest of them a job, ended."""

    DONE = "DONE"
    RANK_EXITED = "RANK_EXITED"
    RANK_KILLED = "RANK_KILLED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    SETUP_FAILED = "SETUP_FAILED"
    OUTPUTS_LOST = "OUTPUTS_LOST"
    PEER_FAILED = "PEER_FAILED"
    PORT_TAKEN = "PORT_TAKEN"
    NODE_LOST = "NODE_LOST"
    PREEMPTED = "PREEMPTED"
    HANG = "HANG"
    GANG_REFUSED = "GANG_REFUSED"
    TIME_LIMIT = "TIME_LIMIT"
    CANCELED = "CANCELED"
    PLATFORM_ERROR = "PLATFORM_ERROR"


class RetryOn(StrEnum):
    """What a job may start again after: the keys of ``retry.on``, and PORT, which is nobody's to
    choose. What each may cost is in ``plan/lifecycle/retry.py``."""

    USER = "user"
    HANG = "hang"
    SETUP = "setup"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"
    PORT = "port"


class Verdict(NamedTuple):
    """All that follows from a reason; ``retry`` is what a restart after it counts to."""

    outcome: JobStatus
    blame: Blame
    retry: RetryOn | None
    sentence: str
    hint: str


VERDICTS: dict[Reason, Verdict] = {
    Reason.DONE: Verdict(
        JobStatus.COMPLETED, Blame.NOBODY, None, "every rank ended with exit code 0", ""
    ),
    Reason.RANK_EXITED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "a rank ended with an exit code other than 0",
        "its log: allranks job logs {job} --rank {rank}",
    ),
    Reason.RANK_KILLED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "a rank was ended by a signal",
        "its log: allranks job logs {job} --rank {rank}",
    ),
    Reason.OUT_OF_MEMORY: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "the kernel killed a process of the job for want of memory",
        "its log: allranks job logs {job} --rank {rank}",
    ),
    Reason.SETUP_FAILED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.SETUP,
        "a node could not prepare the job",
        "mend what the sentence names, and submit it again",
    ),
    Reason.OUTPUTS_LOST: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        None,
        "not all of what the job left could be brought where it was to go",
        "what was brought is there, and its ranks had ended well; mend what the sentence names",
    ),
    Reason.PEER_FAILED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "the node was stopped because another one failed first",
        "look at the first failure: allranks job events {job}",
    ),
    Reason.PORT_TAKEN: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        RetryOn.PORT,
        "another process took the port that was found for the job",
        "it happened on each attempt: a script that listens on MASTER_PORT in two processes "
        "does it to itself; else `ss -ltnp` on that node shows what listens there",
    ),
    Reason.NODE_LOST: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        RetryOn.NODE_LOST,
        "a node was lost",
        "run it with --max-attempts 2 or more to start again by itself on such a loss",
    ),
    Reason.PREEMPTED: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        RetryOn.PREEMPTED,
        "the nodes were taken away for other work",
        "run it with --max-attempts 2 or more to start again by itself after a preemption",
    ),
    Reason.HANG: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.HANG,
        "no rank made progress for as long as --hang-timeout says",
        "where every rank was: allranks job stacks {job}; one that is slow and well needs to print "
        "a line now and then, or a longer --hang-timeout",
    ),
    Reason.GANG_REFUSED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        None,
        "the compute refused the job",
        "ask for fewer nodes, GPUs, CPUs or less memory, or name another --compute",
    ),
    Reason.TIME_LIMIT: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.PREEMPTED,
        "the job ran longer than limits.timeout",
        "raise limits.timeout (--timeout SECONDS), or the time the compute gives its jobs",
    ),
    Reason.CANCELED: Verdict(JobStatus.CANCELED, Blame.NOBODY, None, "the job was canceled", ""),
    Reason.PLATFORM_ERROR: Verdict(
        JobStatus.FAILED,
        Blame.PLATFORM,
        None,
        "allranks itself failed on a node",
        "this is a defect of allranks: please report it with `allranks job events {job} --json`",
    ),
}
