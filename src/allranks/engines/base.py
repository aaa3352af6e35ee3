"""The engine protocol: start the same agent on N nodes, all or none, and report their state.

Each engine declares a ``Kind``; `registry` lists them. Other packages use only these types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from allranks.core.plan import Gang
from allranks.engines.options import Option
from allranks.errors import EngineError
from allranks.settings import Home
from allranks.statuses import GangState, Reason, SharedHome

# Every process of a gang carries this variable, so that processes left by a dead agent are found.
MARKER = "ALLRANKS_GANG"
# In a gang's variables: the member whose job it is, if it is not the home's owner.
OF = "ALLRANKS_AGENT_OF"


class QueueFull(EngineError):
    """A limit on how many gangs may be queued: it takes this one when others have ended."""


class NotYet(EngineError):
    """No failure: the gang will be accepted soon."""


class Handle(NamedTuple):
    """A submitted gang. ``key`` is ours, stored before submitting; ``ref`` is the engine's id.
    ``ended``: its ranks have, and no others follow; its agents may still send files."""

    key: str
    ref: str = ""
    ended: bool = False


class GangStatus(NamedTuple):
    """The state of a gang. UNKNOWN: the engine did not answer, so nothing follows from it.

    ``lost``: nodes known to be dead while the gang lives, if the engine can tell.
    ``reason``: why the gang is GONE, if the engine knows.
    ``paused``: the engine has suspended the agents, so they cannot send heartbeats.
    ``taken``: why the gang must release its resources, if the server has to tell the agents.
    """

    state: GangState
    why: str = ""
    lost: tuple[int, ...] = ()
    reason: Reason | None = None
    paused: bool = False
    taken: str = ""


class Host(NamedTuple):
    """A machine of a cluster. ``state`` and ``why`` are in the engine's words.

    ``ready``: a gang can start there now or when other jobs end; False while it is off or booting.
    ``free_cpus`` and ``free_gpus``: None if unknown. ``memory`` is in bytes, 0 if unknown.
    """

    name: str
    address: str = ""
    state: str = ""
    ready: bool = True
    cpus: float = 0.0
    free_cpus: float | None = 0.0
    gpus: int = 0
    free_gpus: int | None = 0
    memory: int = 0
    why: str = ""


class Inventory(Protocol):
    """Information about a cluster, for people; decisions never use it.

    ``options`` are a compute's. Both methods raise EngineError if the cluster does not answer.
    """

    def check(self, options: Mapping[str, Any]) -> str | None:
        """Raise Refused, in the cluster's words, if these options can never work there. Returns a
        note if jobs cannot start now."""

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        """Return all machines, including those that are off."""


class Engine(Protocol):
    """Starts, polls and stops gangs. Every method may be repeated after a crash."""

    name: str
    # Minimum seconds between two polls while nothing happens; 0: every tick.
    pace: float

    def admit(self, gang: Gang) -> None:
        """Raise Refused, with the reason, if the gang can never run here."""

    def render(self, gang: Gang) -> str:
        """Return the text that ``submit`` sends, without secrets. Pure."""

    def submit(self, gang: Gang) -> Handle:
        """Accept the gang and return at once; submitting a key twice makes one gang.

        Raises Refused if it can never run, QueueFull if it must wait before it is even queued,
        NotYet if it must for a moment, EngineError if the engine does not answer.
        """

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        """Return the status of each gang by key, with few requests however many gangs."""

    def stop(self, handle: Handle) -> Sequence[str] | None:
        """End every process of the gang; an unknown key is ignored. Return those that could not be
        ended, by number and name, if the engine can tell."""


class Target(Engine, Inventory, Protocol):
    """What each compute of a home is backed by."""


class Kind(NamedTuple):
    """The declaration of an engine.

    ``make`` gets the home and the options with ``connects``; it contacts nobody.
    ``end_all`` ends the gangs of a home whose server is gone, and returns what could not be ended.
    Only engines that run gangs on this machine have it; the nodes of all others reach the server
    through the agents' listener.
    ``spot``: options of which at least one must be set for spot jobs to be treated differently;
    None if they never are. ``gpus`` returns the GPUs per node that options alone request, or None.
    ``prepare`` starts what the first gang would wait for, while a job is submitted; idempotent,
    thread-safe, and raises nothing.
    ``setup`` returns what an administrator applies for a namespace, if there is such a text.
    ``server`` returns what runs the server itself inside the cluster, if there is such a text.
    ``images``: every node runs in an image, the job's own or that of the option ``image``.
    ``shared_home``: whether with these options nodes share the disk of the server's home;
    ``mounts``: the folders that outlast nodes that do not; None: which do is unknown.
    ``own_networks``: whether with these options each node has a loopback of its own, even on the
    machine of the server.
    ``address`` returns that of the cluster itself, by name or number, as far as options tell.
    ``queue``: gangs for which it is the same share the limits that ``submit`` may run into.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    make: Callable[[Home, Mapping[str, Any]], Target]
    end_all: Callable[[Home], Sequence[str]] | None = None
    spot: tuple[str, ...] | None = None
    gpus: Callable[[Mapping[str, Any]], int | None] = lambda options: None
    images: bool = False
    setup: Callable[[str], str] | None = None
    prepare: Callable[[Any], None] | None = None
    server: Callable[[str, Mapping[str, str]], str] | None = None
    shared_home: Callable[[Mapping[str, Any]], SharedHome] = lambda options: SharedHome.YES
    mounts: Callable[[Mapping[str, Any]], Sequence[str] | None] = lambda options: None
    own_networks: Callable[[Mapping[str, Any]], bool] = lambda options: False
    address: Callable[[Mapping[str, Any]], str] = lambda options: ""
    queue: Callable[[Gang], str] = lambda gang: ""

    def own_disks(self, options: Mapping[str, Any]) -> bool:
        """Whether with these options no node shares the disk of the server's home."""
        return self.shared_home(options) is SharedHome.NO

    @property
    def remote(self) -> bool:
        return self.end_all is None
