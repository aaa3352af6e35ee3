"""Jobs: what ``/jobs`` answers."""

from __future__ import annotations

from typing import Literal, NotRequired, final

from typing_extensions import TypedDict

from allranks.api.common import Document, Json, Number, Packed

# ---------------------------------------------------------------- a job


class PythonOfJob(TypedDict):
    """The Python of the ranks on ``nodes``. ``packages``: how many an environment made for them
    has; None for a Python that was there."""

    path: str
    version: str
    packages: int | None
    nodes: list[int]


class EnvironmentOfJob(TypedDict):
    """The environment of a job's ranks: an ``image``, a virtual environment (the keys after it), or
    the submitter's Python, whose name is `current`; its ``requirements`` make it where it is
    missing. ``asked_for`` is the name that the job gave, if it was mapped to another environment.
    ``pythons``: those that ran, as the nodes of the last attempt have reported."""

    name: str | None
    image: NotRequired[str]
    python: NotRequired[str | None]
    requirements: NotRequired[list[str]]
    notes: NotRequired[list[str]]
    asked_for: NotRequired[str]
    pythons: NotRequired[list[PythonOfJob]]


class Evidence(TypedDict):
    """The line that shows a cause. ``number``: its line in the log of the rank, None if no rank
    printed it; ``where`` in the user's code it was raised; ``host``: see RankOutcome."""

    line: str
    rank: int | None
    node: int | None
    host: str | None
    number: int | None
    where: str


class SlowRank(TypedDict):
    """A rank, or a node if ``rank`` is None, for which the others wait this ``share`` of the time,
    ``until`` it does so no longer. ``evidence``: sentences on what may slow it down."""

    rank: int | None
    node: int | None
    since: str
    until: str | None
    share: float
    message: str
    evidence: list[str]
    hint: str


class Explanation(TypedDict):
    """A cause of failures, as diagnosis found it. ``retryable`` is None if it may be either."""

    cause: str
    explanation: str
    evidence: Evidence | None
    retryable: bool | None
    exception: str | None


class ErrorCollective(TypedDict):
    """The collective in which ranks disagreed or hung. ``missing_ranks`` have not called it, or
    have called another; ``waiting_ranks`` wait in it, or in that other one; ``where``: its place in
    the script. What is not known is empty."""

    op: str
    sequence: int
    group: str
    missing_ranks: list[int]
    waiting_ranks: list[int]
    where: str


class JobError(TypedDict):
    """Why a job did not complete. Only failed command jobs have the keys of an `Explanation`."""

    reason: str
    blame: str
    message: str
    hint: str
    node: int | None
    rank: int | None
    cause: NotRequired[str]
    explanation: NotRequired[str]
    evidence: NotRequired[Evidence | None]
    retryable: NotRequired[bool | None]
    exception: NotRequired[str | None]
    collective: NotRequired[ErrorCollective]


class RankOfJob(TypedDict):
    rank: int
    node: int
    role: str


class NodeOfJob(TypedDict):
    """A node; what its agent reports is None before it is ready."""

    node: int
    state: str
    address: str | None
    host: str | None
    interface: str | None
    cpus: int | None
    rdma: bool | None


class JobSummary(TypedDict):
    """What lists have of a job of any type. Times are ISO 8601 with time zone."""

    name: str
    status: str
    type: str
    experiment_name: str
    display_name: str
    compute: str
    nodes: int
    processes: int
    attempts: int
    exit_code: int | None
    error: JobError | None
    parent_job_name: str | None
    created_by: str
    created_at: str
    started_at: str | None
    ended_at: str | None


class JobRecord(JobSummary):
    """A job of any type with all details. ``cluster_job``: its last launch, as its cluster names
    it, such as Slurm's JOBID; None on this machine."""

    status_reason: str | None
    leftovers: str | None
    description: str | None
    tags: dict[str, str]
    archived_at: str | None
    environment: EnvironmentOfJob
    command: str
    distribution: str
    gpus_per_node: int
    instance_type: str | None
    code: str | None
    launches: int
    cluster_job: str | None
    parameters: Document
    ranks_ended_at: str | None
    folder: str
    outputs: dict[str, str]
    ranks: list[RankOfJob]
    node_states: list[NodeOfJob]
    spec: Document


# ---------------------------------------------------------------- sweeps


class Objective(TypedDict):
    goal: str
    primary_metric: str


class TrialAnswer(TypedDict):
    """A trial. ``value`` is its best value of the primary metric, ``duration`` in seconds,
    ``stopped_early`` the reason. ``not_finite``: of an ended trial the reports of that metric that
    are nan or infinite, which ``value`` leaves out."""

    job: str
    number: int
    status: str
    parameters: Document
    value: float | None
    not_finite: NotRequired[int]
    duration: float | None
    stopped_early: str | None
    error: str | None


class BestTrial(TrialAnswer):
    metric: str


class ParameterRegion(TypedDict):
    """The values of a parameter among the best ``trials``."""

    trials: int
    low: float | None
    high: float | None
    values: list[str]


class ParameterSummary(TypedDict):
    """``importance``: the parameter's share, None if it is unknown."""

    importance: float | None
    best: ParameterRegion


class Children(TypedDict, total=False):
    """``counts``: of trials, or of submitted steps, by status."""

    counts: dict[str, int]


class SweepSummary(Children, total=False):
    """Of the canceled trials ``stopped_early`` were stopped by the policy. ``note``: what is wrong
    with the primary metric."""

    objective: Objective | None
    total_trials: int
    stopped_early: int
    best: BestTrial | None
    note: str | None


class SweepAnswer(SweepSummary, total=False):
    """``trials``: the best first, those without a value last."""

    parameter_summary: dict[str, ParameterSummary]
    trials: list[TrialAnswer]


# ---------------------------------------------------------------- pipelines


class StepAnswer(TypedDict):
    """A step. ``job`` and the keys after it are None before it is submitted; ``reused`` is the job
    whose result it has, ``not_reused`` why it has none; ``duration`` in seconds."""

    step: str
    type: str
    component: str | None
    after: list[str]
    job: str | None
    status: str | None
    reused: str | None
    not_reused: str | None
    duration: float | None
    error: str | None


class PipelineSummary(Children, total=False):
    total_steps: int


class PipelineAnswer(PipelineSummary, total=False):
    """The steps in the order they run."""

    steps: dict[str, StepAnswer]


# ---------------------------------------------------------------- answers about one job


class JobAnswer(JobRecord, SweepAnswer, PipelineAnswer):
    """A job with its children. Not of pipelines: the job whose result it has, or why it has
    none."""

    reused: NotRequired[str | None]
    not_reused: NotRequired[str | None]


class CarriedFile(TypedDict):
    """``modified``: seconds since the epoch, ``age``: seconds."""

    path: str
    size: int
    modified: float
    age: float


class CarriedAnswer(TypedDict):
    """The files that a job got from the job ``of``, as numbers and as a sentence."""

    of: str
    files: int
    size: int
    newest: list[CarriedFile]
    notes: list[str]
    message: str


class CreatedJob(JobAnswer):
    """A job that was submitted just now. ``page`` is the path of its web page, if there is one."""

    notes: list[str]
    carried: CarriedAnswer | None
    page: str | None


class ImportedJob(TypedDict):
    """A run that was recorded as a job. ``created``: it was not there before; ``size``: the bytes
    of its points that are there."""

    name: str
    created: bool
    size: int


class RestartAnswer(TypedDict):
    """``resumed``: it goes on from what the job left."""

    job: str
    resumed: bool
    message: str


class RestartedJob(JobAnswer):
    notes: list[str]
    carried: CarriedAnswer | None
    restarted: RestartAnswer


class StateOfJob(TypedDict):
    name: str
    own: bool
    version: int | None


class WorkingFolderAnswer(TypedDict):
    """The saved working folders of a job, as numbers; ``newest`` is the path of a file."""

    files: int
    size: int
    newest: str
    checkpoints: int


class DeletedJob(TypedDict):
    name: str
    bytes: int


class ResolvedName(TypedDict):
    """``newest_of``: `terminal` or `user`, if a word such as `@last` named the job."""

    name: str
    newest_of: str


class PlannedRank(TypedDict):
    rank: int
    node: int
    local_rank: int
    role: str
    address_source: str
    argv: list[str]
    environment: dict[str, str]


class PlanAnswer(TypedDict):
    """What the engine receives (``rendered``) and what each rank gets, without secrets."""

    name: str
    digest: str
    compute: str
    engine: str
    rendered: str
    gang: Packed
    rules: Packed
    notes: list[str]
    instance_type: str | None
    task: Packed
    launcher: list[str] | None
    container: list[str] | None
    ranks: list[PlannedRank]


class ServiceAnswer(TypedDict):
    """A service of a job on a node. ``state``: Waiting, Starting, Running, Completed, Failed or
    Ended; Unchecked: a program of the job itself listens on ``port``. ``page``: its path on the
    web page."""

    name: str
    type: str
    node: int
    state: str
    message: str
    port: int | None
    page: str | None


class ChannelAnswer(TypedDict):
    """A channel that waits for its client, and where it leads."""

    number: int
    node: int
    rank: int | None


class EventAnswer(TypedDict):
    """An event of a job. ``data`` depends on its kind: see `api.events`."""

    id: int
    at: str
    kind: str
    launch: int
    attempt: int
    node: int | None
    rank: int | None
    data: Json


# ---------------------------------------------------------------- lists


class ListedJob(JobSummary):
    """A line of a list. ``duration`` in seconds; ``children``: those that have started, by status,
    of ``total_children``; ``metrics``: their last values, and ``parameters``, if they were
    requested; ``best``: in an order by the best of a metric that, if it has one."""

    tags: dict[str, str]
    archived_at: str | None
    duration: float | None
    children: dict[str, int]
    total_children: int
    inputs: Document
    metrics: NotRequired[dict[str, Number]]
    parameters: NotRequired[Document]
    best: NotRequired[dict[str, float]]


class DamagedJob(TypedDict):
    """A line of a list for a job whose record cannot be read."""

    name: str
    status: str
    type: str
    experiment_name: str
    display_name: str
    tags: dict[str, str]
    inputs: Document
    metrics: dict[str, Number]
    nodes: int
    processes: int
    attempts: int
    compute: None
    exit_code: None
    error: None
    started_at: None
    ended_at: None
    archived_at: None
    duration: None
    created_by: str
    created_at: str
    damaged: str


class Difference(TypedDict):
    """``values`` of the jobs in their order; None for a job that has no such thing."""

    section: str
    name: str
    values: list[Number | None]


class ComparisonAnswer(TypedDict):
    """``configurations``: a number for each job, equal for those that differ in seeds only."""

    jobs: list[ListedJob]
    configurations: list[int]
    differences: list[Difference]


# ---------------------------------------------------------------- explanations


class RankOutcome(TypedDict):
    """How another rank ended, as text. ``host``: of its node, on a cluster."""

    rank: int
    node: int
    host: str | None
    said: str


class Change(TypedDict):
    """A difference to another job; empty where there was nothing."""

    what: str
    before: str
    after: str


class EarlierJobs(TypedDict):
    """A job beside earlier ones: ``changed`` since the job ``compared_with``; ``seen_in``: at most
    ten of those that had failed the same way before it."""

    last_completed: str | None
    compared_with: str | None
    changed: list[Change]
    seen_before: int
    seen_in: list[str]


@final
class FailureExplanation(Explanation, EarlierJobs):
    """Why a command job or a sweep failed. ``lines`` are those of the log of ``rank`` around the
    evidence, or else its last ones; ``followed`` the ranks that failed later."""

    name: str
    experiment_name: str
    attempt: int
    error: JobError | None
    fix: str
    blame: str
    rank: int | None
    lines: list[str]
    followed: list[RankOutcome]


class ExplainedStep(StepAnswer):
    why: str


@final
class PipelineExplanation(TypedDict):
    """Of each step why it ran, was reused, failed or did not run."""

    name: str
    type: str
    error: JobError | None
    steps: dict[str, ExplainedStep]


@final
class StepExplanation(TypedDict):
    """Why a completed step ran or was reused."""

    name: str
    type: str
    error: None
    why: str


AnyExplanation = FailureExplanation | PipelineExplanation | StepExplanation


# ---------------------------------------------------------------- files


class FileAnswer(TypedDict):
    """A file of a job. ``mtime_ns`` is the time of its last change. A link to a file of the list
    has its path as ``link``; size and time are those of that file."""

    path: str
    size: int
    mtime_ns: int
    link: NotRequired[str]


class FolderAnswer(TypedDict):
    """A folder; ``mtime_ns`` is the time of its last change."""

    path: str
    mtime_ns: int


class LinkAnswer(TypedDict):
    """A symbolic link of a data asset or a job, with its text; a special file has no ``target``."""

    path: str
    target: str


class CodeFile(TypedDict):
    """A file of a job's code; of a link its target."""

    path: str
    size: int
    link: str | None


class BundleHead(TypedDict):
    """The line before a file in a bundle. A missing file has only the ``size``, None."""

    size: int | None
    mtime_ns: NotRequired[int]
    crc32: NotRequired[int]


class ChecksumAnswer(TypedDict):
    """The checksum of the first ``bytes`` of a file with that ``size``."""

    size: int
    mtime_ns: int
    crc32: int
    bytes: int


# ---------------------------------------------------------------- the stream of a job


class Phase(TypedDict):
    """What a job does now, and for how long."""

    name: str
    seconds: float | None


@final
class LogLine(TypedDict):
    """A piece of a rank's output; ``offset`` is its end in the log. Bytes that are not UTF-8 are
    lone surrogates. ``child``: the job of the rank, in the stream of a sweep or pipeline."""

    log: str
    attempt: int
    rank: int
    node: int
    offset: int
    child: NotRequired[str]


@final
class MergedLine(TypedDict):
    """A line of a rank's output; ``offset`` is its first byte in the log, ``at`` when it was
    printed, in seconds since the epoch (0: not known). Long lines are cut."""

    rank: int
    offset: int
    at: float
    text: str


@final
class MergedLog(TypedDict):
    """Output of all ranks by time: the lines that end in the pieces from ``begin`` to
    before ``end`` of ``pieces`` so far. ``place``: the piece that was asked for. ``ordered``:
    whether times are known. ``over``: no more will come."""

    attempt: int
    lines: list[MergedLine]
    begin: int
    end: int
    pieces: int
    place: int | None
    ordered: bool
    over: bool


class JobProgress(JobSummary, SweepSummary, PipelineSummary):
    """A job that has not ended, in its stream. ``phase``: of command jobs."""

    status_reason: str | None
    phase: NotRequired[Phase | None]


@final
class ChangeLine(TypedDict):
    """A change of a job. ``children``: those that have changed."""

    job: JobProgress
    last: Literal[False]
    children: NotRequired[list[TrialAnswer | StepAnswer]]


@final
class EndLine(TypedDict):
    """The last line: the job has ended, or is not followed."""

    job: JobAnswer
    last: Literal[True]
    children: NotRequired[list[TrialAnswer | StepAnswer]]


StreamedJob = JobProgress | JobAnswer
JobLine = ChangeLine | EndLine


# ---------------------------------------------------------------- stacks


class Frame(TypedDict):
    file: str
    line: int
    function: str
    text: str


class Thread(TypedDict):
    name: str
    frames: list[Frame]


class StackProcess(TypedDict):
    """A process of a rank at one moment; see `core.diagnosis.stacks.Process`."""

    rank: int
    node: int
    pid: int
    name: str
    state: str
    frames: list[Frame]
    threads: list[Thread]
    parent: int | None
    silent: float
    busy: float
    why: str
    collectives: NotRequired[Packed | None]


class StackGroup(TypedDict):
    """Processes with equal stacks. ``pids``: rank, node and process of each; ``own``: they are the
    ranks' own processes; ``waits``: what they wait for, ``why``: the reason that they have no
    stack."""

    ranks: list[int]
    count: int
    pids: list[tuple[int, int, int]]
    own: bool
    waits: str | None
    doing: str
    name: str
    why: str | None
    stack: list[Frame]
    threads: list[Thread]


class OddProcess(TypedDict):
    """The process that is somewhere else than the others."""

    rank: int
    node: int
    pid: int
    at: str


class SavedStacks(TypedDict):
    """Stacks in the record of a job; ``missing`` are nodes that did not answer."""

    attempt: int
    at: float
    missing: list[int]
    processes: list[StackProcess]


class UnprofiledRank(TypedDict):
    rank: int | None
    node: int
    why: str


class Operator(TypedDict):
    """An operator of a torch trace; ``share``: of the time on its device."""

    name: str
    device: str
    calls: int
    seconds: float
    share: float


class ProfileStopped(TypedDict):
    """Whether a profile was being taken."""

    stopped: bool


class ProfileAnswer(TypedDict):
    """A profile of the ranks. ``verdict`` is a `core.profiles.verdict.Verdict`; ``memory``: of each
    rank the lines that grew, its size, and torch's allocator; ``files``: the paths in the record.
    """

    job: str
    attempt: int
    at: float
    kind: str
    seconds: float
    verdict: Packed
    missing: list[UnprofiledRank]
    operators: list[Operator]
    memory: list[Document]
    files: list[str]
    folder: str


class CollectiveCall(TypedDict):
    """The last collective of a group that a rank has called; see `core.diagnosis.collectives`."""

    rank: int
    group: str
    number: int
    operation: str
    sizes: list[list[int]]
    types: list[str]
    pending: bool
    since: float
    place: str


class Collectives(TypedDict):
    """Who keeps whom waiting, by the recorders of the ranks; see `core.diagnosis.collectives`.
    ``ranks``: those to look at; ``since``: since when the last of ``waiting`` waits."""

    kind: str
    message: str
    ranks: list[int]
    waiting: list[int]
    since: float | None
    last: list[CollectiveCall]


class GroupedStacks(SavedStacks):
    """The largest group first. ``collectives``: None where nothing is recorded."""

    groups: list[StackGroup]
    odd: OddProcess | None
    collectives: Collectives | None


class StacksAnswer(GroupedStacks):
    """``live``: taken now."""

    live: bool
