"""Upload a job's outputs at its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

from allranks.agent.lifecycle.attempt import Attempt, sentence
from allranks.agent.lifecycle.stop import Stopped
from allranks.errors import AllranksError
from allranks.statuses import Reason

if TYPE_CHECKING:
    from allranks.agent.data.transfers import Transfers

Order = dict[str, Any]


class OrStop(Protocol):
    """Waits, and raises Stopped if the server stops the attempt with an order that is heeded."""

    def __call__(
        self,
        fd: int | None = None,
        seconds: float | None = None,
        heeds: Callable[[Order], bool] = ...,
    ) -> None: ...


def upload(
    data: Transfers,
    attempt: Attempt,
    order: Callable[[], Order],
    or_stop: OrStop,
    note: Callable[[str, Mapping[str, Any]], None],
    grace: float,
) -> None:
    """Upload outputs, for at most the grace if the job has failed. Files that cannot be uploaded
    stay in the record."""
    data.report_streams(note)
    done, previous = attempt.reason is Reason.DONE, order()

    def heeds(order: Order) -> bool:
        return done and order != previous and order["why"] != Reason.DONE

    def wait(fd: int | None = None, seconds: float | None = None) -> None:
        or_stop(fd, seconds, heeds)

    try:
        data.finish(note, wait, None if done else grace)
    except Stopped as error:
        attempt.overrule(error.why)
        data.keep(note)
    except (AllranksError, OSError) as error:
        kept = data.keep(note)
        hint = getattr(error, "hint", None) or "fix that"
        attempt.overrule(Reason.OUTPUTS_LOST, sentence(error), f"{hint}; files kept: {kept}")
