"""The plan: what will happen, wholly resolved, as data.

A ``Gang`` is all an engine ever learns of a job. A ``Task`` is all an agent learns; it is one for
the job, and what differs between nodes and ranks is computed from it by ``distributions``, on the
agent and for ``--dry-run`` by the same function. (Agents import this: NamedTuples, because
importing ``dataclasses`` takes longer than all the rest of an agent's own code.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from allranks.plan.data.kept_files import LIMIT
from allranks.settings import Clocks


class Gang(NamedTuple):
    """N agents to start, all or none. ``gpus``, ``cpus``, ``memory`` (bytes) and ``processes`` (of
    the user's, at most) are per node; None means "not named". ``env`` holds secrets: it never goes
    on a command line. ``grace`` are the seconds its ranks may take to end, the
    server's if None; ``spot``: others may take its place."""

    key: str
    nodes: int
    argv: tuple[str, ...]
    env: Mapping[str, str] = {}
    gpus: int = 0
    cpus: float | None = None
    memory: int | None = None
    options: Mapping[str, Any] = {}
    processes: int = 1
    grace: float | None = None
    spot: bool = False


class InputTask(NamedTuple):
    """An input: a literal (``text``), a path on the node's disk (``source``), or data elsewhere
    (``uri``), which the account of ``datastore`` opens or else the node's own. ``unpack``: what is
    in its archives is wanted; ``sharded``: each node gets its share of the files. ``asset`` is its
    name and version, if it is one."""

    name: str
    text: str | None = None
    source: str | None = None
    mode: str = "ro_mount"
    uri: str = ""
    datastore: str = ""
    unpack: bool = False
    sharded: bool = False
    asset: str = ""

    @property
    def cached(self) -> bool:
        """Whether it goes through the node's cache."""
        kept = self.mode not in ("direct", "stream")
        return kept and bool(self.uri or self.unpack or self.sharded)

    @property
    def streamed(self) -> bool:
        """Whether ranks read it over HTTP from their own node."""
        return self.mode == "stream"


class OutputTask(NamedTuple):
    """An output folder or file that exists, or whose parent does, before ranks start. With a
    ``uri`` (and the ``datastore`` that opens it) it is brought there: while the job runs where
    ``mode`` is `rw_mount`, at the end where it is `upload`; ``path`` is empty then, each node has
    its own."""

    name: str
    path: str
    is_file: bool = False
    uri: str = ""
    datastore: str = ""
    mode: str = "rw_mount"

    @property
    def brought(self) -> bool:
        """Whether the node brings it somewhere."""
        return bool(self.uri) and self.mode != "direct"


class Recipe(NamedTuple):
    """A virtual environment to be made on the node, for all who ask for the same. ``python`` as
    `3.11` or `>=3.9,<3.12`, or empty for the submitter's; ``requirements`` and ``constraints`` are
    lines as pip takes them; ``torch_backend`` as uv has it; ``notes`` tell what became of the rest
    of what was asked for."""

    python: str = ""
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    torch_backend: str = ""
    variables: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()

    @staticmethod
    def load(data: Mapping[str, Any]) -> Recipe:
        """The recipe that ``pack`` made into JSON."""
        several = {name: tuple(data[name]) for name in ("requirements", "constraints", "notes")}
        return Recipe(**{**data, **several})


class Container(NamedTuple):
    """What ranks run in where that is not the node itself: an image under the program ``engine``.
    ``shm_size`` in bytes, the program's own if None; ``args`` are more words for it. Where there is
    a ``context``, a folder or an address, the image is made of it as its ``dockerfile`` says."""

    engine: str
    image: str
    shm_size: int | None = None
    args: tuple[str, ...] = ()
    context: str = ""
    dockerfile: str = ""


class MetricTask(NamedTuple):
    """A metric to be read from what ranks print: by a pattern, of one ``rank`` or, None, of all."""

    name: str
    pattern: str
    rank: int | None = 0


class Task(NamedTuple):
    """What every node of a job does. Times in seconds.

    ``command`` still holds its ``${{…}}``: only a node knows where its inputs lie. ``base`` is the
    clean environment a rank starts from, ``variables`` the user's own, which win over ours;
    ``options`` are the distribution's own (which MPI, which port).
    ``record`` is the job's folder on a disk the node shares with the server.
    ``container``: ranks run in that, and ``base`` is laid over the image's own environment.
    ``environment`` is its name and version where it has one.
    ``recipe``: they find that environment, kept below ``environments`` and made by the program
    ``uv`` where it is not there yet, with the variables ``tools``.
    ``continues`` is the job that it runs again, ``previous`` why that one ended.
    ``cache``: the folder for what jobs are given of data elsewhere, which may take up to
    ``cache_limit`` bytes, or what the disk has.
    ``parent`` is the sweep or the pipeline that it is a child of; ``parameters`` are the values of
    a trial's search space, as text.
    ``keep_work``: bytes that a node keeps of what ranks wrote into their working folder; None: all.
    """

    job: str
    experiment: str
    command: str
    nodes: int = 1
    procs: int = 1
    gpus: int = 0
    distribution: str = "none"
    chiefs: int = 0
    parameter_servers: int = 0
    evaluators: int = 0
    options: Mapping[str, Any] = {}
    base: Mapping[str, str] = {}
    variables: Mapping[str, str] = {}
    code: str | None = None
    in_place: str | None = None
    inputs: tuple[InputTask, ...] = ()
    outputs: tuple[OutputTask, ...] = ()
    record: str = ""
    timeout: float | None = None
    hang_timeout: float | None = None
    environment: str = ""
    environment_asked: str = ""
    container: Container | None = None
    recipe: Recipe | None = None
    environments: str = ""
    uv: str = ""
    tools: Mapping[str, str] = {}
    cache: str = ""
    cache_limit: int | None = None
    metrics: tuple[MetricTask, ...] = ()
    continues: str = ""
    previous: str = ""
    state: str = ""
    keep_work: int | None = LIMIT
    parent: str = ""
    parameters: Mapping[str, str] = {}

    @property
    def moves_data(self) -> bool:
        """Whether anything of it lies elsewhere."""
        inputs = any(each.cached or each.streamed for each in self.inputs)
        return inputs or any(each.brought for each in self.outputs)

    @staticmethod
    def load(data: Mapping[str, Any]) -> Task:
        """The task that ``pack`` made into JSON."""
        fields = dict(data)
        fields["inputs"] = tuple(InputTask(**each) for each in fields["inputs"])
        fields["outputs"] = tuple(OutputTask(**each) for each in fields["outputs"])
        # A task of an older version has none.
        fields["metrics"] = tuple(MetricTask(**each) for each in fields.get("metrics", ()))
        if held := fields.get("container"):
            fields["container"] = Container(**{**held, "args": tuple(held["args"])})
        if wanted := fields.get("recipe"):
            fields["recipe"] = Recipe.load(wanted)
        return Task(**fields)


class Rules(NamedTuple):
    """What ``decide`` may do with a job: how many nodes, how often, and after what to repeat.
    ``budgets`` are restarts by key of ``on`` where they are not those of
    ``plan/lifecycle/retry.py``, ``grace`` the seconds from SIGTERM to SIGKILL where they are not
    the server's, ``look`` the seconds between two looks at its state where those are to be fewer.
    """

    nodes: int = 1
    max_attempts: int = 1
    on: tuple[str, ...] = ("node_lost", "preempted", "hang", "user", "setup")
    timeout: float | None = None
    budgets: Mapping[str, int] = {}
    grace: float | None = None
    look: float | None = None

    def clocks(self, clocks: Clocks) -> Clocks:
        """The server's, as they are for this job."""
        look = clocks.look if self.look is None else min(clocks.look, self.look)
        return clocks._replace(grace=clocks.grace if self.grace is None else self.grace, look=look)


class Plan(NamedTuple):
    """All of it. ``digest`` names the content: equal plans have equal digests.

    ``compute`` is the name of the target, ``engine`` its kind; with ``gang.options`` that says
    which cluster it is, whatever becomes of the compute. ``server_address`` is where its nodes
    reach the server, empty when they are on the server's own machine. ``notes`` are for who submits
    the job.
    """

    gang: Gang
    task: Task
    rules: Rules
    engine: str
    digest: str = ""
    compute: str = ""
    server_address: str = ""
    notes: tuple[str, ...] = ()


class Place(NamedTuple):
    """Where a node turned out to be, told by its agent when it is ready; ``interface`` is the
    network interface of its address, ``cpus`` how many it may use."""

    address: str
    host: str
    ports: tuple[int, ...] = ()
    interface: str = ""
    cpus: int | None = None

    @staticmethod
    def load(data: Mapping[str, Any]) -> Place:
        fields = {**data, "ports": tuple(data["ports"])}
        return Place(**{name: fields[name] for name in Place._fields if name in fields})


def pack(value: Any) -> Any:
    """Plain JSON data of plan types, enums and containers, as deep as they go."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {name: pack(each) for name, each in zip(value._fields, value, strict=True)}
    if isinstance(value, Mapping):
        return {str(key): pack(each) for key, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [pack(each) for each in value]
    return str(value) if isinstance(value, str) else value
