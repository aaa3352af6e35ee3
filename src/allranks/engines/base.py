"""What an engine is: start the same agents on N nodes, all or none; tell what became of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from allranks.plan.plan import Gang
from allranks.states import GangState

# Every process of a gang carries this variable, so that what a dead agent left can be found.
MARKER = "ALLRANKS_GANG"


class Handle(NamedTuple):
    """A gang at an engine: ``key`` is ours and known before the effect, ``ref`` the engine's id."""

    key: str
    ref: str = ""


class Seen(NamedTuple):
    """An engine's word on a gang. UNKNOWN means "could not ask" and is never a verdict.

    ``lost`` are nodes known to be dead while the gang lives, where the engine can tell.
    """

    state: GangState
    why: str = ""
    lost: tuple[int, ...] = ()


class Engine(Protocol):
    """Five methods. Any of them may be called again after a crash: done twice is done once."""

    name: str

    def admit(self, gang: Gang) -> None:
        """Raise Refused, with the reason, if the gang could never run here."""

    def render(self, gang: Gang) -> str:
        """The very text that ``submit`` sends, for people to read. Pure; without secrets."""

    def submit(self, gang: Gang) -> Handle:
        """Take the gang on and return at once; the same key twice is one gang.

        Raises Refused if it never will run, EngineError if the engine could not be asked.
        """

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, Seen]:
        """What became of all of them, by key, in one question."""

    def stop(self, handle: Handle) -> None:
        """Make it GONE, with every process of it; an unknown key: nothing to do."""
