"""Inputs and outputs in datastores: brought before the ranks start, and back at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allranks.agent.lifecycle.agent_calls import AgentCalls, Stopped
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.lifecycle.unsaved import stops
from allranks.agent.supervision.attempt import sentence
from allranks.core.lifecycle.phases import Phase
from allranks.errors import AllranksError
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.agent.data.transfers import Transfers
    from allranks.api.agents import Assignment
    from allranks.core.data.addresses import Account


class StoredData(Part):
    phase = Phase.DATA

    def __init__(self, calls: AgentCalls) -> None:
        self._calls = calls
        self._data: Transfers | None = None
        self._hint = ""

    def begin(self, run: Run) -> None:
        """Provide the inputs, and folders for the outputs."""
        if not run.task.moves_data:
            return
        from allranks.agent.data.transfers import Transfers  # lazy: many jobs have none

        calls, self._hint = self._calls, ""
        self._data = data = Transfers(
            run.task, calls.where.node, run.folder, self._account, calls.or_stop, calls.doing
        )
        run.closing.callback(data.close)
        run.paths |= {f"inputs.{name}": path for name, path in data.provide(calls.note).items()}
        run.paths |= {f"outputs.{name}": path for name, path in data.begin().items()}

    def _account(self, datastore: str) -> Account:
        return self._calls.link.account(datastore, self._calls.patience)

    def finish(self, run: Run) -> str:
        """Upload outputs, for at most the grace if the job has failed. Files that cannot be
        uploaded stay in the record."""
        if self._data is None:
            return ""
        note, done = self._calls.note, run.is_done
        if not self._hint:  # the first time
            self._data.report_streams(note)

        def heeds(order: Assignment) -> bool:
            return done and stops(order) and not run.was_stopped

        def wait(fd: int | None = None, seconds: float | None = None) -> None:
            self._calls.or_stop(fd, seconds, heeds, needs_server=False)

        try:
            self._data.finish(note, wait, None if done else self._calls.clocks.grace)
        except Stopped as error:
            run.attempt.overrule(error.why)
            self._data.keep(note)
        except (AllranksError, OSError) as error:
            self._hint = getattr(error, "hint", None) or "fix that"
            return sentence(error)
        return ""

    def lost(self, run: Run, why: str) -> None:
        assert self._data is not None
        kept = self._data.keep(self._calls.note)
        run.attempt.overrule(Reason.OUTPUTS_LOST, why, f"{self._hint}; files kept: {kept}")
