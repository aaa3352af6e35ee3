"""The plan of a job, fully resolved, as data.

A ``Gang`` is all that an engine knows of a job. A ``Task`` is all that an agent knows; there is one
for the whole job, and ``distributions`` computes from it what differs between nodes and ranks, on
the agent and for ``--dry-run`` with the same functions. (Agents import this module. It uses
NamedTuples because importing ``dataclasses`` takes longer than the rest of an agent's code.)
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.core.data.kept_files import LIMIT
from allranks.settings import Clocks


class Gang(NamedTuple):
    """N agents to start, all or none. ``gpus``, ``cpus``, ``memory`` (bytes) and ``processes`` (the
    most user processes) are per node; None: not specified. ``env`` contains secrets and is never
    passed on a command line. ``grace``: seconds that ranks have to end, by default the server's.
    ``spot``: the gang may be preempted. ``ranks`` share the CPUs of their machines, or 0: parameter
    servers do not count, and no rank of a job that a rank of another submitted. ``fixed_ports``
    are those that ranks listen on although allranks did not choose them. Gangs of one ``apart``
    rather run on different machines, where the engine can prefer that."""

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
    ranks: int = 0
    fixed_ports: tuple[int, ...] = ()
    apart: str = ""


class InputTask(NamedTuple):
    """An input: a literal (``text``), a path on the node's disk (``source``), or remote data
    (``uri``), opened with the credentials of ``datastore`` or else the node's own. ``unpack``: its
    archives are unpacked; ``sharded``: each node gets its share of the files. ``asset``: name and
    version, if it is a data asset. ``digest``: of what the server sees at the path, by which a node
    tells whether it sees the same; empty: the node takes what lies there."""

    name: str
    text: str | None = None
    source: str | None = None
    mode: str = "ro_mount"
    uri: str = ""
    datastore: str = ""
    unpack: bool = False
    sharded: bool = False
    asset: str = ""
    digest: str = ""

    @property
    def cached(self) -> bool:
        """Whether it goes through the node's cache."""
        downloaded = self.mode not in ("direct", "stream")
        return downloaded and bool(self.uri or self.unpack or self.sharded)

    @property
    def streamed(self) -> bool:
        """Whether ranks read it over HTTP from their node."""
        return self.mode == "stream"


class OutputTask(NamedTuple):
    """An output folder, or a file whose folder exists before ranks start. With a ``uri`` (and the
    ``datastore`` that opens it) the node uploads it: during the job for the ``mode`` `rw_mount`, at
    the end for `upload`. ``path`` is then empty, because each node has its own."""

    name: str
    path: str
    is_file: bool = False
    uri: str = ""
    datastore: str = ""
    mode: str = "rw_mount"

    @property
    def brought(self) -> bool:
        """Whether the node uploads it."""
        return bool(self.uri) and self.mode != "direct"


class ServiceTask(NamedTuple):
    """A service of a node: what ``type`` says, or a ``command``; without one it is the job's own.
    ``port``: None for any free one, which is in its variable PORT. ``everywhere``: on all nodes,
    not on the first alone."""

    name: str
    type: str
    command: str = ""
    port: int | None = None
    log_dir: str = ""
    everywhere: bool = False

    @property
    def is_started(self) -> bool:
        """Whether the node starts it."""
        return bool(self.command) or self.type in ("jupyter_lab", "vs_code", "tensor_board")


class Recipe(NamedTuple):
    """A virtual environment to build on the node, shared by all jobs with the same recipe.
    ``python`` is `3.11` or `>=3.9,<3.12`, or empty for the submitter's; ``requirements`` and
    ``constraints`` are lines for pip; ``torch_backend`` is uv's option; ``notes`` say what was
    replaced or left out. ``allow_builds``: builds from source may take long.
    ``optional``: packages that are left out where none fits the others. ``exact``: the
    requirements are all packages, each of one version, and nothing is resolved.
    ``nearest_python``: what the node has serves where it lacks that Python, or packages for it."""

    python: str = ""
    requirements: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    torch_backend: str = ""
    variables: Mapping[str, str] = {}
    notes: tuple[str, ...] = ()
    allow_builds: bool = False
    optional: tuple[str, ...] = ()
    exact: bool = False
    nearest_python: bool = False


class CurrentPython(NamedTuple):
    """The submitter's Python, for a node that may lack it: its path, its version as `3.11`, its
    folders of packages, and what they held (``fingerprint``). ``requirements`` make the same
    elsewhere; ``notes`` name what does not go along."""

    path: str
    version: str
    sites: tuple[str, ...]
    fingerprint: str
    requirements: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class Container(NamedTuple):
    """The container that ranks run in: an image, run by the program ``engine``. ``shm_size`` is in
    bytes, by default the program's; ``args`` are more arguments for it. With a ``context`` (a
    folder or a URL) the image is built from it by its ``dockerfile``."""

    engine: str
    image: str
    shm_size: int | None = None
    args: tuple[str, ...] = ()
    context: str = ""
    dockerfile: str = ""


class MetricTask(NamedTuple):
    """A metric to read from the output of one ``rank`` (None: of all) by a pattern."""

    name: str
    pattern: str
    rank: int | None = 0


class Task(NamedTuple):
    """What every node of a job does. Times in seconds.

    ``command`` still has its ``${{…}}``, because only a node knows the paths of its inputs.
    ``base`` is the clean environment of a rank, ``variables`` are the user's, which override ours;
    ``options`` are those of the distribution (which MPI, which port).
    ``record`` is the job's folder on a disk that the node shares with the server; or, with
    ``sends_files``, on the server's: the node keeps the job's files in a folder of its own and
    sends them. ``environments`` and ``cache`` are then the node's own as well. ``may_send``: each
    node that does not see the server's home does so.
    ``container``: ranks run in it, with ``base`` on top of the image's environment.
    ``environment`` is the name and version of the environment, if it has one. ``recipe``: ranks get
    that environment; it is stored below ``environments`` and built, if missing, by the program
    ``uv`` with the variables ``tools``. With ``current``, only on a node that lacks that Python.
    ``continues`` is the job that this one restarts, ``previous`` why that one ended.
    ``cache``: the folder for downloaded inputs, which may take up to ``cache_limit`` bytes, by
    default as much as the disk has.
    ``parent`` is the sweep or the pipeline that it is a child of; ``parameters`` are the values of
    a trial's search space, as text.
    ``warm``: modules that ranks find imported, where they can be forked from a process that has.
    ``keep_work``: bytes of new files in the working folder that a node keeps; None: all.
    ``log_limit``: bytes of each rank's output that are kept, the newest; None: all.
    ``fresh_work``: each attempt gets a new working folder.
    ``on_failure``: how long a failed attempt is held.
    ``inside``: the job on whose nodes it runs; with ``inherits`` in that one's environment.
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
    flight_recorder: bool = True
    on_failure: float | None = None
    environment: str = ""
    environment_asked: str = ""
    container: Container | None = None
    recipe: Recipe | None = None
    current: CurrentPython | None = None
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
    log_limit: int | None = None
    parent: str = ""
    parameters: Mapping[str, str] = {}
    warm: tuple[str, ...] = ()
    sends_files: bool = False
    may_send: bool = False
    fresh_work: bool = False
    services: tuple[ServiceTask, ...] = ()
    inside: str = ""
    inherits: bool = False

    @property
    def home(self) -> str:
        """The server's home when the job was submitted; it may have moved since."""
        return posixpath.dirname(posixpath.dirname(self.record))

    @property
    def is_received(self) -> bool:
        """Whether nodes may send the job's files to the server."""
        return self.sends_files or self.may_send

    @property
    def moves_data(self) -> bool:
        """Whether inputs or outputs are remote."""
        inputs = any(item.cached or item.streamed for item in self.inputs)
        return inputs or any(item.brought for item in self.outputs)


class Rules(NamedTuple):
    """The restart rules of a job. ``budgets``: restarts by key of ``on``, by default those of
    ``core/lifecycle/retry.py``. ``grace``: seconds from SIGTERM to SIGKILL, by default the
    server's. ``look``: seconds between two scans of its state, if fewer than the server's.
    ``no_progress``: what follows time-limited attempts without progress: fail, warn or ignore.
    """

    nodes: int = 1
    max_attempts: int = 1
    on: tuple[str, ...] = ("node_lost", "preempted", "hang", "user", "setup")
    timeout: float | None = None
    budgets: Mapping[str, int] = {}
    grace: float | None = None
    look: float | None = None
    no_progress: str = "fail"

    def clocks(self, clocks: Clocks) -> Clocks:
        """The server's clocks with this job's own values."""
        look = clocks.look if self.look is None else min(clocks.look, self.look)
        return clocks._replace(grace=clocks.grace if self.grace is None else self.grace, look=look)


class Plan(NamedTuple):
    """The whole plan. Equal plans have equal digests.

    ``compute`` is the name of the compute, ``engine`` its kind; with ``gang.options`` they identify
    the cluster even if the compute is changed later. ``server_address`` is where nodes reach the
    server, empty on the server's own machine. ``notes`` are for the submitter.
    """

    gang: Gang
    task: Task
    rules: Rules
    engine: str
    digest: str = ""
    compute: str = ""
    server_address: str = ""
    notes: tuple[str, ...] = ()


class Interpreter(NamedTuple):
    """The Python of a node's ranks: its path, its version, and how many packages an environment
    made for them has; None for one that was there."""

    path: str
    version: str
    packages: int | None = None


class Place(NamedTuple):
    """The address of a node, reported by its agent when it is ready; ``interface`` is the network
    interface of the address, ``cpus`` how many CPUs it may use, ``rdma`` whether it has active
    ports of InfiniBand or RoCE, ``end`` when the engine's time limit ends, if it said so."""

    address: str
    host: str
    ports: tuple[int, ...] = ()
    interface: str = ""
    cpus: int | None = None
    python: Interpreter | None = None
    rdma: bool | None = None
    end: float | None = None
