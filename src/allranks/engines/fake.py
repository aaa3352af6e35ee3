"""A scriptable engine that starts nothing: its gangs take their misfortunes from their options.

``start_after`` polls queued, ``provision_after`` polls provisioning; ``refuse`` with that sentence;
``lose_node`` N ``at`` that poll; ``preempt_at`` that poll; ``does_not_answer`` for so many polls.
Time is the number of polls a gang has been through, so that tests need no clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allranks.engines.base import GangStatus, Handle
from allranks.errors import Refused
from allranks.plan.plan import Gang
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
                f"the job can never run here: it needs {gang.nodes} nodes, {self.nodes} are there",
                where="resources",
                hint="ask for fewer nodes",
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
        return {handle.key: self._seen(handle.key) for handle in handles}

    def stop(self, handle: Handle) -> None:
        self.gangs.pop(handle.key, None)
        self.stopped.append(handle.key)

    def _seen(self, key: str) -> GangStatus:
        gang = self.gangs.get(key)
        if gang is None:
            return GangStatus(GangState.GONE, "it is not there")
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
