"""Who enters a node beside its ranks: channels and services, and the agents of other jobs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from allranks.agent.channel.channel_opener import ChannelOpener
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.processes.guests import Guests
from allranks.agent.processes.hold import FOLDER
from allranks.events import SERVICE, Kind

# Seconds for a guest to send its last data, beside its grace.
_TO_LEAVE = 5.0


class Channels(Part):
    """They open from the begin of an attempt on, and lead to what there is then."""

    def __init__(self, calls: AgentCalls, opener: ChannelOpener) -> None:
        self._calls, self._opener = calls, opener
        calls.link.channel = opener.open

    def begin(self, run: Run) -> None:
        opener = self._opener
        opener.cwd = self._calls.where.folder
        opener.env = lambda: {**run.task.base, **run.task.variables}
        opener.waits_for_container = run.task.container is not None
        run.closing.callback(opener.leave)

    def start(self, run: Run) -> None:
        self._opener.started, self._opener.held = run.attempt.started, run.folder / FOLDER
        run.attempt.when_released = self._opener.leave
        node = self._calls.where.node
        services = [item for item in run.task.services if item.everywhere or node == 0]
        if not services:
            return
        from allranks.agent.channel.services import Services  # lazy: few jobs have some

        def begun(logs: Mapping[int, Path]) -> None:
            beside = Services(self._opener, run.folder, self._say_service)
            beside.begin(services, run.work.folder)

        run.when_begun.append(begun)

    def _say_service(self, name: str, state: str, message: str) -> None:
        self._calls.say(Kind.NOTE, about=SERVICE, service=name, state=state, message=message)


class GuestJobs(Part):
    """Jobs that run on this node while its own ranks do."""

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls
        calls.link.guests = self._guests = Guests(calls.where)

    def begin(self, run: Run) -> None:
        run.closing.callback(self._guests.close, self._calls.clocks.grace)
        self._guests.open(run.work.folder, run.task)

    def finish(self, run: Run) -> str:
        self._guests.close(self._calls.clocks.grace + _TO_LEAVE)
        return ""
