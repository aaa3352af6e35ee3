"""An engine for tests that starts nothing: the options of a gang script what happens to it.

``start_after``: polls until it leaves the queue. ``provision_after``: polls until it is up.
``refuse``: the message to refuse it with. ``lose_node``: a node that dies, at poll ``at``.
``preempt_at``: the poll at which it is preempted. ``does_not_answer``: polls without an answer.
Time is the number of polls of a gang, so tests need no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allranks.core.plan import Gang
from allranks.engines.base import GangStatus, Handle
from allranks.errors import Refused
from allranks.statuses import GangState


class FakeEngine:
    name = "fake"
    pace = 0.0

    def __init__(self, nodes: int = 64) -> None:
        self.nodes = nodes
        self.gangs: dict[str, Gang] = {}
        self.polls: dict[str, int] = {}
        self.stopped: list[str] = []

    def admit(self, gang: Gang) -> None:
        if gang.nodes > self.nodes:
            raise Refused(
                f"the job can never run here: it needs {gang.nodes} nodes, {self.nodes} available",
                where="resources",
                hint="request fewer nodes",
            )
        if "refuse" in gang.options:
            raise Refused(str(gang.options["refuse"]), where="resources", hint="ask otherwise")

    def render(self, gang: Gang) -> str:
        return f"{gang.nodes} × {' '.join(gang.argv)}"

    def submit(self, gang: Gang) -> Handle:
        self.admit(gang)
        self.gangs.setdefault(gang.key, gang)
        self.polls.setdefault(gang.key, 0)
        return Handle(gang.key, f"fake-{len(self.gangs)}")

    def poll(self, handles: Sequence[Handle]) -> Mapping[str, GangStatus]:
        return {handle.key: self._status(handle.key) for handle in handles}

    def stop(self, handle: Handle) -> None:
        self.gangs.pop(handle.key, None)
        self.stopped.append(handle.key)

    def _status(self, key: str) -> GangStatus:
        gang = self.gangs.get(key)
        if gang is None:
            return GangStatus(GangState.GONE, "the gang does not exist")
        now, option = self.polls[key], gang.options
        self.polls[key] = now + 1
        if now < option.get("does_not_answer", 0):
            return GangStatus(GangState.UNKNOWN, "the engine did not answer")
        if now < option.get("start_after", 0):
            return GangStatus(GangState.QUEUED, "Resources")
        if now < option.get("provision_after", 0):
            return GangStatus(GangState.PROVISIONING, "booting")
        if now >= option.get("preempt_at", 1 << 30):
            return GangStatus(GangState.GONE, "preempted")
        if "lose_node" in option and now >= option.get("at", 0):
            return GangStatus(GangState.UP, lost=(option["lose_node"],))
        return GangStatus(GangState.UP)
