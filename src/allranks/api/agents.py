"""What the server answers agents: the task, orders, and what it has of a node's files."""

from __future__ import annotations

from typing import Literal, NotRequired

from typing_extensions import TypedDict

from allranks.api.common import Packed


class Assignment(TypedDict):
    """What an agent has to do now. ``why`` is the reason to `stop`; the keys after it are of `go`:
    when the ranks of the job first started, why its previous attempt ended, the rank that the node
    has to kill, that it has to stop its ranks where they are because the attempt is held, and where
    all nodes are, each a `core.plan.Place`."""

    do: Literal["wait", "prepare", "go", "stop", "leave"]
    why: NotRequired[str]
    started: NotRequired[float | None]
    previous: NotRequired[str | None]
    kill: NotRequired[int]
    hold: NotRequired[bool]
    places: NotRequired[list[Packed]]


class AttemptAssignment(Assignment):
    """``attempt``: the one to `prepare`."""

    attempt: NotRequired[int]


class ChannelOrder(TypedDict):
    """A channel that a helper of the agent has to connect: a program with its words, a shell if
    there are none, a server of sftp, a port, a service by its name, which may be empty, or with
    ``debug`` a debugger of the rank's held process, by its id if it is not 0."""

    number: int
    rank: int | None
    command: list[str]
    terminal: bool
    sftp: bool
    port: int | None
    service: str
    debug: NotRequired[int | None]


class ProfileOrder(TypedDict):
    """A profile that somebody wants: of these ranks, or of all if there are none. ``stop``: the one
    that is taken is not wanted any more."""

    number: int
    kind: Literal["python", "torch", "memory"]
    seconds: float
    ranks: list[int]
    stop: NotRequired[bool]


class GuestOrder(TypedDict):
    """The agent of another job, to be started on this node: the ``key`` of its gang, its variables,
    which hold its token, and how many of the node's GPUs it gets."""

    key: str
    env: dict[str, str]
    gpus: int


class RankProfile(TypedDict):
    """What a process of a rank has answered, or why it has not."""

    rank: int
    pid: int
    answer: Packed | None
    why: str


class RankStrain(TypedDict, total=False):
    """What keeps a rank's processes from running: shares of the time that one is ``stopped`` by a
    signal, waits for a disk (``blocked``) or a processor (``starved``), shares of the periods in
    which its control group had used its CPUs up (``throttled``); bytes ``swapped`` out."""

    stopped: float
    blocked: float
    starved: float
    throttled: float
    swapped: float


class HostStrain(TypedDict, total=False):
    """What a host is short of. ``others``: CPUs that programs use which are not the job's, and
    ``busiest`` the first of them; shares of the time that the hypervisor takes (``stolen``), that
    some task waits for a disk (``io``) or for memory; bytes a second ``swapping``; the ``clock`` of
    its CPUs as a share of the highest; the share of TCP segments sent again (``resent``)."""

    others: float
    busiest: str
    stolen: float
    io: float
    memory: float
    swapping: float
    clock: float
    resent: float


class RankPace(TypedDict):
    """The last collectives of a rank of torch, in a process of the job's rank ``job_rank``: the
    index of the group, the number, and when it was called."""

    job_rank: int
    calls: list[tuple[int, int, float]]


class PaceReport(TypedDict):
    """When the ranks of a node called their collectives, until ``at``, by the node's clock, which
    is ``now``. ``groups`` have a name and ranks; ``strain`` is by the job's ranks; ``period``: the
    seconds since the last report."""

    at: float
    now: float
    period: float
    groups: list[tuple[str, list[int]]]
    ranks: dict[str, RankPace]
    strain: dict[str, RankStrain]
    host: HostStrain


class PaceAnswer(TypedDict):
    """``suspects``: the node has to name the programs that compete with its ranks."""

    suspects: bool


class Order(Assignment):
    """An assignment on its way. ``id`` differs where the assignment does; ``server`` names the
    process that sent it, ``heard`` is the number of the last event that it has of the node.
    ``watched``: somebody looks at the job; ``stacks``: the number of an open request for stacks;
    ``channels``: those that the agent does not know yet; ``profile``: one to take; ``guests``: all
    that are to be there, if those that the agent has named are others."""

    attempt: int
    id: str
    server: str
    heard: int
    watched: NotRequired[bool]
    stacks: NotRequired[int]
    channels: NotRequired[list[ChannelOrder]]
    profile: NotRequired[ProfileOrder]
    guests: NotRequired[list[GuestOrder]]


class HeldSet(TypedDict):
    """What the server has of a node's working set: see `core.data.working_set.Held`."""

    form: str
    unfinished: list[str]
    sends: bool
    limit: int


class HelloAnswer(TypedDict):
    """What an agent needs to begin. ``task`` is a `core.plan.Task`. ``state`` and ``files``: there
    are some of earlier launches; ``home``: the file by which a node knows that it sees the server's
    home; ``clocks``: see `settings.Clocks`; ``mlflow``: variables for the ranks."""

    attempt: int
    order: Order
    task: Packed
    state: bool
    files: bool
    home: str | None
    work: HeldSet
    clocks: dict[str, float]
    mlflow: dict[str, str] | None


class HelloRequest(TypedDict):
    """``own_disk``: the node does not see the server's home, and sends the job's files."""

    own_disk: bool


class InputListing(TypedDict):
    """The files of an input with name, size, ``mtime_ns`` and mode; whether it is one file; and how
    many were left out because they lie elsewhere."""

    files: list[tuple[str, int, int, int]]
    is_file: bool
    left_out: int


class OutputSeen(TypedDict):
    """Whether the server sees the file that a node has put into the folder of an output."""

    seen: bool


class InputDigest(TypedDict):
    """See `agent.data.local_digest`."""

    digest: str


class SyncAnswer(TypedDict):
    """``done``: the numbers of the changes that were made, by path. ``entries``: all that there is
    now, if others have changed something; see `core.data.state_manifest`. ``due``: keep a version
    once nothing changes. ``was``: the revision before the server added other nodes' files."""

    revision: int
    done: dict[str, int]
    entries: Packed | None
    due: bool
    was: NotRequired[int]


class Acknowledgement(TypedDict):
    """The number of the last event that the record has. ``order``: what a job's only node does that
    has said it is ready."""

    acknowledged: int
    order: NotRequired[Order]


class ReceivedAnswer(TypedDict):
    """The bytes that the server has of a log or a file of points."""

    size: int
