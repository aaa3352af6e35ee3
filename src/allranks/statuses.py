"""Statuses, reasons and their consequences.

Outcome, blame, restart class, message and hint of every ``Reason`` come from one table; a test
checks that it is complete.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class JobStatus(StrEnum):
    """The status of a job, with Azure ML's names."""

    NOT_STARTED = "NotStarted"
    QUEUED = "Queued"
    PROVISIONING = "Provisioning"
    PREPARING = "Preparing"
    RUNNING = "Running"
    FINALIZING = "Finalizing"
    COMPLETED = "Completed"
    FAILED = "Failed"
    CANCELED = "Canceled"


# Begins the reason of a running job whose failed attempt stays as it is.
HELD = "held until"
TERMINAL = frozenset({JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELED})


class NodeState(StrEnum):
    """The state of a node in the current attempt. Agents report all except LOST, which the server
    sets."""

    ABSENT = "ABSENT"
    SETUP = "SETUP"
    READY = "READY"
    RUNNING = "RUNNING"
    DRAINING = "DRAINING"
    EXITED = "EXITED"
    LOST = "LOST"


class GangState(StrEnum):
    """The state of a gang that the engine last reported. ABSENT: not submitted in this launch."""

    ABSENT = "absent"
    QUEUED = "queued"
    PROVISIONING = "provisioning"
    UP = "up"
    GONE = "gone"
    UNKNOWN = "unknown"


class Purpose(StrEnum):
    """What follows Finalizing: the end; a new launch; the next attempt in the same launch; or a new
    launch that uses no attempt."""

    FINISH = "finish"
    RELAUNCH = "relaunch"
    REGROUP = "regroup"
    RESUBMIT = "resubmit"


class SharedHome(StrEnum):
    """Whether the nodes of a compute share the disk of the server's home. AUTO: each node looks."""

    YES = "yes"
    NO = "no"
    AUTO = "auto"


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
    PORT_CONFLICT = "PORT_CONFLICT"
    NODE_LOST = "NODE_LOST"
    PREEMPTED = "PREEMPTED"
    HANG = "HANG"
    GANG_REFUSED = "GANG_REFUSED"
    TIME_LIMIT = "TIME_LIMIT"
    NO_PROGRESS = "NO_PROGRESS"
    CANCELED = "CANCELED"
    PLATFORM_ERROR = "PLATFORM_ERROR"


class RetryOn(StrEnum):
    """Causes after which a job may restart: the keys of ``retry.on``, and PORT, which users cannot
    choose. Their budgets are in ``core/lifecycle/retry.py``."""

    USER = "user"
    HANG = "hang"
    SETUP = "setup"
    NODE_LOST = "node_lost"
    PREEMPTED = "preempted"
    PORT = "port"


class Verdict(NamedTuple):
    """The consequences of a reason. ``retry`` is the budget that a restart uses."""

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
        "see its log: allranks job logs {job} --rank {rank}",
    ),
    Reason.RANK_KILLED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "a rank was ended by a signal",
        "see its log: allranks job logs {job} --rank {rank}",
    ),
    Reason.OUT_OF_MEMORY: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "the kernel killed a process of the job because memory ran out",
        "see its log: allranks job logs {job} --rank {rank}",
    ),
    Reason.SETUP_FAILED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.SETUP,
        "a node could not prepare the job",
        "fix what the message names and submit it again",
    ),
    Reason.OUTPUTS_LOST: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        None,
        "not everything that the ranks wrote could be saved",
        "the ranks completed, and what was saved is there; fix what the message names",
    ),
    Reason.PEER_FAILED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.USER,
        "the node was stopped because another node failed first",
        "see the first failure: allranks job events {job}",
    ),
    Reason.PORT_TAKEN: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        RetryOn.PORT,
        "another process took the port chosen for the job",
        "it happened on each attempt: check that the script does not listen on "
        "MASTER_PORT in two processes; `ss -ltnp` on that node shows which process uses it",
    ),
    Reason.PORT_CONFLICT: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.PORT,
        "another job on the same host uses the port on which this job's ranks meet",
        "take MASTER_PORT from the environment, where it is a port of this job alone; or name the "
        "port outside the script (--env MASTER_PORT=29500), and jobs wait for one another",
    ),
    Reason.NODE_LOST: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        RetryOn.NODE_LOST,
        "a node was lost",
        "submit it with --max-attempts 2 or more to restart automatically after a loss",
    ),
    Reason.PREEMPTED: Verdict(
        JobStatus.FAILED,
        Blame.INFRASTRUCTURE,
        RetryOn.PREEMPTED,
        "the job was preempted",
        "submit it with --max-attempts 2 or more to restart automatically after a preemption",
    ),
    Reason.HANG: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.HANG,
        "no rank made progress within --hang-timeout",
        "see where each rank was: allranks job stacks {job}; if it is only slow, "
        "print a line now and then or raise --hang-timeout",
    ),
    Reason.GANG_REFUSED: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        None,
        "the compute refused the job",
        "request fewer nodes, GPUs or CPUs or less memory, or use another --compute",
    ),
    Reason.TIME_LIMIT: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        RetryOn.PREEMPTED,
        "the job ran longer than limits.timeout",
        "raise limits.timeout (--timeout SECONDS), or the compute's time limit",
    ),
    Reason.NO_PROGRESS: Verdict(
        JobStatus.FAILED,
        Blame.USER,
        None,
        "three attempts in a row reached the time limit of the compute and left no new file and no "
        "metric step beyond the best so far",
        "raise that limit, or save to ALLRANKS_STATE_DIR within it and continue from there; "
        "`retry: {{no_progress: warn}}` goes on",
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
