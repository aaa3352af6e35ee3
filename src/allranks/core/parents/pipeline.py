"""What a pipeline does next: a pure function of its record, its steps' records and the time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from allranks.statuses import TERMINAL, JobStatus, Reason


class Rules(NamedTuple):
    """``after`` has the steps that each step depends on, by name, in the order of the file. With
    ``continue_on_step_failure`` steps that do not depend on a failed one still run. ``timeout`` in
    seconds."""

    after: Mapping[str, tuple[str, ...]]
    continue_on_step_failure: bool = True
    timeout: float | None = None


class StepState(NamedTuple):
    """The job of a step as its own record has it. ``canceled``: its cancellation was requested.
    ``closed``: its result is recorded for later pipelines."""

    status: JobStatus
    canceled: bool = False
    closed: bool = False


class Parent(NamedTuple):
    """The pipeline's own record. ``started_at`` is None until its first action; ``refused`` says
    why a step could not be submitted."""

    started_at: float | None = None
    canceled: bool = False
    refused: str = ""


class Action(NamedTuple):
    """One thing to do: ``start`` the pipeline, ``submit``, ``cancel`` or ``close`` the job of a
    ``step``, ``finish`` the pipeline with ``reason``."""

    kind: Literal["start", "submit", "cancel", "close", "finish"]
    step: str = ""
    reason: Reason | None = None


def next_action(
    rules: Rules, parent: Parent, states: Mapping[str, StepState], now: float
) -> Action | None:
    """The next action; None until something happens. It is returned again until the record shows
    it, so doing it twice must be the same as doing it once."""
    live = [name for name, state in states.items() if state.status not in TERMINAL]
    ended = (name for name, e in states.items() if e.status in TERMINAL and not e.closed)
    if (name := next(ended, None)) is not None:
        return Action("close", name)
    if (reason := _stops(rules, parent, now)) is not None:
        running = next((name for name in live if not states[name].canceled), None)
        if running is not None:
            return Action("cancel", running)
        return None if live else Action("finish", reason=reason)
    if parent.started_at is None:
        return Action("start")
    if (ready := _ready(rules, states)) is not None:
        return Action("submit", ready)
    return None if live else Action("finish", reason=outcome(rules, states))


def outcome(rules: Rules, states: Mapping[str, StepState]) -> Reason:
    """How a pipeline ends whose steps have ended."""
    ended = {state.status for state in states.values()}
    if JobStatus.FAILED in ended:
        return Reason.RANK_EXITED
    return Reason.CANCELED if JobStatus.CANCELED in ended else Reason.DONE


def to_come(rules: Rules, parent: Parent, states: Mapping[str, StepState]) -> list[str]:
    """The steps that may still be submitted."""
    lost = {name for name, e in states.items() if e.status in TERMINAL and not _done(e)}
    if parent.canceled or parent.refused or (lost and not rules.continue_on_step_failure):
        return []
    while more := {name for name, after in rules.after.items() if lost & {*after}} - lost:
        lost |= more
    return [name for name in rules.after if name not in lost and name not in states]


def _stops(rules: Rules, parent: Parent, now: float) -> Reason | None:
    """Why the pipeline ends before its last step."""
    if parent.canceled:
        return Reason.CANCELED
    if parent.refused:
        return Reason.GANG_REFUSED
    started = parent.started_at
    if rules.timeout is not None and started is not None and now >= started + rules.timeout:
        return Reason.TIME_LIMIT
    return None


def _ready(rules: Rules, states: Mapping[str, StepState]) -> str | None:
    """A step whose inputs are there. After a failure only with ``continue_on_step_failure``."""
    failed = any(state.status in TERMINAL and not _done(state) for state in states.values())
    if failed and not rules.continue_on_step_failure:
        return None
    return next(
        (
            name
            for name, after in rules.after.items()
            if name not in states and all(e in states and _done(states[e]) for e in after)
        ),
        None,
    )


def _done(state: StepState) -> bool:
    return state.status is JobStatus.COMPLETED
