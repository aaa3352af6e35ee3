"""One live sweep: reads its trials, takes the steps that `plan.parents.sweep` decides."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from allranks import clock
from allranks.errors import Conflict, NotFound, Refused, SpecError
from allranks.events import Kind
from allranks.plan.parents import sweep as decisions
from allranks.plan.parents.sweep import Parent, Rules, Step, Trial
from allranks.server.dependencies import Services
from allranks.server.jobs.view import submitter
from allranks.server.parents.create import total_trials
from allranks.server.parents.reports import reported_metrics, reports
from allranks.server.parents.sampler import Draw, Past, draw
from allranks.server.parents.view import metric_hint
from allranks.server.submission.submit import Submission, submit
from allranks.spec.sweep.job import AshaSampling, SweepJob
from allranks.statuses import TERMINAL, VERDICTS, Blame, JobStatus, Reason
from allranks.store.children import ChildState
from allranks.store.job_rows import Child, JobRow

log = logging.getLogger("allranks.parents")

_OWNER = "parents"


class Sweep:
    """The controller of a sweep. Everything it knows is read from the record again after a restart
    of the server."""

    def __init__(self, row: JobRow, services: Services) -> None:
        self._name, self._services = row.name, services
        self.spec = SweepJob.parse(row.spec)
        algorithm, limits = self.spec.sampling_algorithm, self.spec.limits
        total = total_trials(self.spec)
        policy = algorithm if isinstance(algorithm, AshaSampling) else self.spec.early_termination
        self._rules = Rules(
            total,
            min(total, limits.max_concurrent_trials or total),
            self.spec.objective.goal,
            limits.timeout,
            policy,
        )
        self._states: dict[int, ChildState] = {}
        self._reports: dict[int, tuple[float, ...]] = {}

    def advance(self) -> bool:
        """Take every step that is due. Returns whether the sweep is still live."""
        while True:
            row = self._services.records.get(self._name)
            if row.record.status in TERMINAL:
                return False
            record = row.record
            parent = Parent(record.went_at, record.canceled, record.message)
            trials = self._trials(force=record.given_up)
            step = decisions.next_step(self._rules, parent, trials, clock.now())
            if step is None:
                return True
            self._take(row, step)
            self._services.wakeups.notify(self._name)

    def _trials(self, *, force: bool = False) -> list[Trial]:
        """All trials. Closed ones are not read again. With ``force`` a trial counts as canceled
        only if it was canceled with force."""
        newest = max((each.id for each in self._states.values()), default=-1)
        open_ = tuple(e.id for e in self._states.values() if not _is_closed(e))
        for each in self._services.children.of(self._name, above=newest, ids=open_):
            self._states[each.number] = each
        return [self._trial(self._states[number], force) for number in sorted(self._states)]

    def _trial(self, state: ChildState, force: bool) -> Trial:
        values: tuple[float, ...] = ()
        if self._rules.policy is not None:
            values = self._reports_of(state)
        return Trial(
            state.number,
            state.status,
            values,
            int(state.notes.get("judged", 0)),
            state.given_up if force else state.canceled,
            _is_closed(state),
            state.notes.get("value"),
        )

    def _reports_of(self, state: ChildState) -> tuple[float, ...]:
        if state.number in self._reports and _is_closed(state):
            return self._reports[state.number]
        metric = self.spec.objective.primary_metric
        self._reports[state.number] = reports(self._services.points, state.id, metric)
        return self._reports[state.number]

    # ------------------------------------------------------------ steps

    def _take(self, row: JobRow, step: Step) -> None:
        if step.kind == "start":
            self._append(row.name, Kind.GO)
        elif step.kind == "draw":
            self._draw(row, step.number)
        elif step.kind == "close":
            self._close(self._states[step.number])
        elif step.kind == "judge":
            self._judge(self._states[step.number], step)
        elif step.kind == "cancel":
            child = self._states[step.number].name
            data = {"force": True} if row.record.given_up else {}
            self._append(child, Kind.CANCEL_ASKED, data)
            self._services.loops.wake(child)
        else:
            self._finish(row, step.reason or Reason.DONE)

    def _draw(self, row: JobRow, number: int) -> None:
        """Submit a trial. A trial that cannot be submitted ends the sweep."""
        past = [self._past(self._states[each]) for each in sorted(self._states)]
        spec = self.spec
        drawn = draw(
            spec.search_space,
            spec.sampling_algorithm,
            spec.objective.goal,
            number,
            past,
            row.name,
        )
        try:
            self._submit(row, number, drawn)
        except (Conflict, NotFound, Refused, SpecError) as error:
            data = {"message": f"trial {number} could not be submitted: {_one_line(error)}"}
            self._append(row.name, Kind.REFUSED, data)

    def _submit(self, row: JobRow, number: int, drawn: Draw) -> None:
        services, task = self._services, row.plan.task
        notes = {"parameters": drawn.parameters, "numbers": drawn.numbers}
        name, tries = f"{row.name}_{number}", 1
        while True:
            spec = self.spec.trial_spec(name, drawn.parameters)
            submission = Submission(spec, task.code, task.in_place, task.base, task.tools)
            try:
                submit(
                    submission,
                    services,
                    submitter(row.spec),
                    services.environments.with_deleted(),
                    child=Child(row.name, number, notes),
                )
                return
            except Conflict as error:
                if services.children.has(row.name, number):
                    return  # submitted before this server was restarted
                if error.where != "name":
                    raise
                # Another job has the name.
                tries += 1
                name = f"{row.name}_{number}-{tries}"

    def _past(self, state: ChildState) -> Past:
        failed = state.status is JobStatus.FAILED
        value = None if failed else state.notes.get("value")
        return Past(state.notes.get("numbers", {}), value, running=state.status not in TERMINAL)

    def _close(self, state: ChildState) -> None:
        """Record the best value of an ended trial."""
        values = self._reports_of(state)
        value = decisions.best_value(self._rules.goal, values)
        notes = {**state.notes, "value": value, "reports": len(values)}
        if not values:
            notes["metrics"] = reported_metrics(self._services.points, state.id)
        self._services.records.append(state.name, [], notes)

    def _judge(self, state: ChildState, step: Step) -> None:
        notes = {**state.notes, "judged": step.interval}
        if not step.why:
            self._services.records.append(state.name, [], notes)
            return
        notes["stopped"] = step.why
        row = self._services.records.get(state.name)
        event = row.event(Kind.CANCEL_ASKED, data={"by": "early_termination"})
        self._services.records.append(state.name, [event], notes)
        self._services.loops.wake(state.name)

    def _finish(self, row: JobRow, reason: Reason) -> None:
        trials = self._trials()
        best = decisions.best(self._rules.goal, trials)
        verdict = VERDICTS[reason]
        error = None
        if verdict.outcome is JobStatus.FAILED:
            error = self._error(row, reason, trials)
        result = {
            "status": str(verdict.outcome),
            "exit_code": 0 if verdict.outcome is JobStatus.COMPLETED else 1,
            "error": error,
        }
        event = row.event(Kind.FINISHED, data=result)
        self._services.records.apply(
            row,
            _OWNER,
            [event],
            ended_at=event.at,
            exit_code=result["exit_code"],
            error=error,
            notes={"best": None if best is None else self._states[best.number].name},
        )

    def _error(self, row: JobRow, reason: Reason, trials: Sequence[Trial]) -> dict[str, Any]:
        message, hint, blame = VERDICTS[reason].sentence, VERDICTS[reason].hint, Blame.USER
        metric = self.spec.objective.primary_metric
        failed = [each for each in trials if each.status is JobStatus.FAILED]
        if reason is Reason.GANG_REFUSED:
            message = row.record.message
            hint = f"correct it, then continue: allranks job restart {row.name}"
        elif reason is Reason.TIME_LIMIT:
            message = "the sweep ran longer than limits.timeout"
            hint = "raise limits.timeout"
        elif failed and len(failed) == len(trials):
            first = self._states[failed[0].number]
            why = (first.error or {}).get("message", "it failed")
            message = f"all {len(failed)} trials failed; the first, {first.name}: {why}"
            hint = f"allranks job explain {first.name}"
        else:
            message = f"no trial reported the metric {metric!r}"
            hint = metric_hint(metric, self._states)
        return {
            "reason": str(reason),
            "blame": str(blame),
            "message": message,
            "hint": hint.format(job=row.name, rank=0),
            "node": None,
            "rank": None,
        }

    def _append(self, name: str, kind: Kind, data: Mapping[str, Any] | None = None) -> None:
        row = self._services.records.get(name)
        self._services.records.append(name, [row.event(kind, data=data)])


def _is_closed(state: ChildState) -> bool:
    return "value" in state.notes


def _one_line(error: Exception) -> str:
    return "; ".join(str(error).splitlines())
