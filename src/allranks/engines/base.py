"""What an engine is: start the same agents on N nodes, all or none; tell what became of them.

Engines are declared as a ``Kind``; ``kinds`` lists them. All else knows them by these types alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from allranks.engines.options import Option
from allranks.plan.plan import Gang
from allranks.settings import Home
from allranks.statuses import GangState, Reason

# Every process of a gang carries this variable, so that what a dead agent left can be found.
MARKER = "ALLRANKS_GANG"


class Handle(NamedTuple):
    """A gang at an engine: ``key`` is ours and known before the effect, ``ref`` the engine's id."""

    key: str
    ref: str = ""


class GangStatus(NamedTuple):
    """An engine's word on a gang. UNKNOWN means "could not ask" and is never a verdict.

    ``lost`` are nodes known to be dead while the gang lives, where the engine can tell.
    ``reason`` is why it is GONE, where the engine knows better than "not there"; ``paused``: its
    agents cannot speak just now, because the engine has stopped them for a while. ``taken`` says
    for what it is to give its place up, where the engine leaves it to the server to tell it so.
    """

    state: GangState
    why: str = ""
    lost: tuple[int, ...] = ()
    reason: Reason | None = None
    paused: bool = False
    taken: str = ""


class Host(NamedTuple):
    """A machine of a cluster, as its engine sees it; ``state`` and ``why`` in the engine's words.

    ``ready``: a gang could start there now or once others have ended; one that is off, or is being
    booted, is not. ``memory`` in bytes; 0 where the engine does not tell.
    """

    name: str
    address: str = ""
    state: str = ""
    ready: bool = True
    cpus: float = 0.0
    free_cpus: float = 0.0
    gpus: int = 0
    free_gpus: int = 0
    memory: int = 0
    why: str = ""


class Inventory(Protocol):
    """What a cluster says of itself; ``options`` are a compute's. Asked by people, never to decide.

    Both raise EngineError when the cluster could not be asked.
    """

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise Refused, in the cluster's own words, if these options can never work there."""

    def hosts(self, options: Mapping[str, Any]) -> Sequence[Host]:
        """Its machines, those that are off as well."""


class Engine(Protocol):
    """Five methods. Any of them may be called again after a crash: done twice is done once."""

    name: str
    # Seconds between two polls at least, while nothing happens; 0: every tick.
    pace: float

    def admit(self, gang: Gang) -> None:
        """Raise Refused, with the reason, if the gang could never run here."""

    def render(self, gang: Gang) -> str:
        """The very text that ``submit`` sends, for people to read. Pure; without secrets."""

    def submit(self, gang: Gang) -> Handle:
        """Take the gang on and return at once; the same key twice is one gang.

        Raises Refused if it never will run, EngineError if the engine could not be asked.
        """

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        """What became of all of them, by key; the number of questions is not theirs."""

    def stop(self, handle: Handle) -> None:
        """Make it GONE, with every process of it; an unknown key: nothing to do."""


class Target(Engine, Inventory, Protocol):
    """What a compute of a home is: both."""


class Kind(NamedTuple):
    """An engine as it is declared: its name, what its options are, how one is made.

    ``make`` gets the home and the options that say which cluster is meant, and asks nobody.
    ``end_all`` is of engines whose gangs run on this machine: it ends those of a home whose server
    is gone. The nodes of all others are other hosts, who reach the server by the agents' door.
    ``spot`` are the options of which one has to be given for spot jobs to be any different; None:
    they never are. ``gpus`` counts the GPUs of each node that the options alone ask for, None where
    they ask for none.
    """

    name: str
    help: str
    options: tuple[Option, ...]
    make: Callable[[Home, Mapping[str, Any]], Target]
    end_all: Callable[[Home], None] | None = None
    spot: tuple[str, ...] | None = None
    gpus: Callable[[Mapping[str, Any]], int | None] = lambda options: None

    @property
    def remote(self) -> bool:
        return self.end_all is None
