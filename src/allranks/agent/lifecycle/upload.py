"""Upload a job's outputs at its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from allranks.agent.lifecycle.attempt import Attempt, sentence
from allranks.agent.lifecycle.interrupted_waits import Stopped
from allranks.agent.lifecycle.unsaved import AgentCalls, stops, with_room
from allranks.errors import AllranksError
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.agent.data.transfers import Transfers
    from allranks.api.agents import Assignment


class OrStop(Protocol):
    """Waits, and raises Stopped if the server stops the attempt with an order that is heeded."""

    def __call__(
        self,
        fd: int | None = None,
        seconds: float | None = None,
        heeds: Callable[[Assignment], bool] = ...,
    ) -> None: ...


def upload(
    data: Transfers,
    attempt: Attempt,
    or_stop: OrStop,
    calls: AgentCalls,
) -> None:
    """Upload outputs, for at most the grace if the job has failed. Files that cannot be uploaded
    stay in the record."""
    note = calls.note
    data.report_streams(note)
    done, was_stopped = attempt.reason is Reason.DONE, stops(calls.order())

    def heeds(order: Assignment) -> bool:
        return done and stops(order) and not was_stopped

    def wait(fd: int | None = None, seconds: float | None = None) -> None:
        or_stop(fd, seconds, heeds)

    errors = list[AllranksError | OSError]()

    def save() -> str:
        errors.clear()
        try:
            data.finish(note, wait, None if done else calls.grace)
        except (AllranksError, OSError) as error:
            errors.append(error)
        return sentence(errors[0]) if errors else ""

    try:
        why = with_room(save, attempt, calls)
    except Stopped as error:
        attempt.overrule(error.why)
        data.keep(note)
        return
    if why:
        kept = data.keep(note)
        hint = getattr(errors[0], "hint", None) or "fix that"
        attempt.overrule(Reason.OUTPUTS_LOST, why, f"{hint}; files kept: {kept}")
