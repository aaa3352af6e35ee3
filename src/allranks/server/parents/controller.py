"""What the controllers of sweeps and pipelines have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from allranks.errors import Conflict
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.statuses import TERMINAL, VERDICTS, Blame, JobStatus, Reason
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import JobRow
from allranks.store.key_values import read_once

if TYPE_CHECKING:
    from allranks.api.jobs import JobError
    from allranks.store.jobs.job_notes import JobNotes


class Controller(ABC):
    """Drives one live job that has children. Everything it knows is read from the record again
    after a restart of the server."""

    def __init__(self, row: JobRow, services: Services) -> None:
        self._name, self._services = row.name, services
        self._states: dict[int, ChildState] = {}

    def advance(self) -> bool:
        """Do everything that is due. Returns whether the job is still live."""
        with read_once():
            while True:
                row = self._services.records.get(self._name)
                if row.record.status in TERMINAL:
                    return False
                if not self._step(row):
                    return True
                self._services.wakeups.notify(self._name)

    @abstractmethod
    def _step(self, row: JobRow) -> bool:
        """Do one thing, if any is due."""

    def _submit_as(self, name: str, number: int, submit: Callable[[str], object]) -> None:
        """Submit the child ``number`` under the first free name. Raises like ``submit``."""
        tries, candidate = 1, name
        while True:
            try:
                submit(candidate)
                return
            except Conflict as error:
                if self._services.children.has(self._name, number):
                    return  # submitted before this server was restarted
                if error.where != "name":
                    raise
                # Another job has the name.
                tries += 1
                candidate = f"{name}-{tries}"

    def _cancel(self, row: JobRow, child: str) -> None:
        self._services.cancel(child, row.record.given_up)

    def _append(self, name: str, kind: Kind, data: Mapping[str, Any] | None = None) -> None:
        row = self._services.records.get(name)
        self._services.records.append(name, [row.event(kind, data=data)])

    def _finish(
        self,
        row: JobRow,
        reason: Reason,
        error: JobError | None,
        notes: JobNotes,
    ) -> None:
        outcome = VERDICTS[reason].outcome
        error = error if outcome is JobStatus.FAILED else None
        code = _exit_code(outcome, self._states.values())
        result = {"status": str(outcome), "exit_code": code, "error": error}
        event = row.event(Kind.FINISHED, data=result)
        self._services.records.apply(
            row,
            [event],
            ended_at=event.at,
            exit_code=code,
            error=error,
            notes={**row.notes, **notes},
        )
        if row.parent is not None:
            self._services.loops.wake(row.parent)


def _exit_code(outcome: JobStatus, children: Iterable[ChildState]) -> int:
    """The exit code of a job with children: of a failed one that of the child that failed first; 1
    if no rank gave one."""
    if outcome is JobStatus.COMPLETED:
        return 0
    first = first_failed(children)
    return 1 if outcome is not JobStatus.FAILED or first is None else first.exit_code or 1


def first_failed(children: Iterable[ChildState]) -> ChildState | None:
    """The child that failed first."""
    failed = [child for child in children if child.status is JobStatus.FAILED]
    return min(failed, key=lambda child: child.ended_at or math.inf, default=None)


def error_of(row: JobRow, reason: Reason, message: str = "", hint: str = "") -> JobError:
    """The error of a job with children."""
    verdict = VERDICTS[reason]
    return {
        "reason": str(reason),
        "blame": str(Blame.USER),
        "message": message or verdict.sentence,
        "hint": (hint or verdict.hint).replace("{job}", row.name).replace("{rank}", "0"),
        "node": None,
        "rank": None,
    }


def one_line(error: Exception) -> str:
    """An error's text on one line."""
    return "; ".join(str(error).splitlines())
