"""One live sweep: reads its trials, takes the steps that `core.parents.sweep` decides."""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from allranks import clock
from allranks.core.job.sessions import needs
from allranks.core.parents import sweep as decisions
from allranks.core.parents.sweep import Parent, Rules, Step, Trial
from allranks.errors import Conflict, NotFound, Refused, SpecError
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.server.jobs.view import submitter
from allranks.server.parents.controller import Controller, error_of, first_failed, one_line
from allranks.server.parents.kept_nodes import KeptNodes, keeps_nodes
from allranks.server.parents.sweep.create import total_trials
from allranks.server.parents.sweep.reports import reported_metrics, reports
from allranks.server.parents.sweep.sampler import Draw, Past, draw
from allranks.server.parents.sweep.view import metric_hint
from allranks.server.submission.submit import Submission, submit
from allranks.spec.sweep.job import SweepJob
from allranks.statuses import TERMINAL, Blame, JobStatus, Reason
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import Child, JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import JobError
    from allranks.store.jobs.job_notes import JobNotes

log = logging.getLogger("allranks.parents")


class Sweep(Controller):
    """The controller of a sweep."""

    def __init__(self, row: JobRow, services: Services) -> None:
        super().__init__(row, services)
        self.spec = SweepJob.parse(row.spec)
        limits = self.spec.limits
        total = total_trials(self.spec)
        self._rules = Rules(
            total,
            min(total, limits.max_concurrent_trials or total),
            None if self.spec.objective is None else self.spec.goal,
            limits.timeout,
            self.spec.policy,
        )
        self._reports: dict[int, tuple[float, ...]] = {}
        self._nodes: KeptNodes | None = None
        if self.spec.reuse_nodes and total > 1 and keeps_nodes(row.plan.engine, services):
            self._nodes = KeptNodes(row.name, services, self._submit_as)

    def _step(self, row: JobRow) -> bool:
        record = row.record
        again = frozenset(row.notes.get("again", ()))
        parent = Parent(record.went_at, record.canceled, record.message, again)
        trials = self._trials(force=record.given_up)
        step = decisions.next_step(self._rules, parent, trials, clock.now())
        if step is not None:
            self._take(row, step)
            return True
        return self._nodes is not None and self._keep_nodes(self._nodes, row, trials)

    def _keep_nodes(self, nodes: KeptNodes, row: JobRow, trials: Sequence[Trial]) -> bool:
        live = [self._states[e.number].name for e in trials if e.status not in TERMINAL]
        to_come = 0 if row.record.canceled else self._rules.trials - len(trials)
        gang = row.plan.gang._replace(nodes=self.spec.trial_resources.instance_count)
        return nodes.advance(live, {needs(row.plan._replace(gang=gang)): to_come})

    def _trials(self, *, force: bool = False) -> list[Trial]:
        """All trials. Closed ones are not read again. With ``force`` a trial counts as canceled
        only if it was canceled with force."""
        newest = max((each.id for each in self._states.values()), default=-1)
        open_ = tuple(e.id for e in self._states.values() if not _is_closed(e))
        for state in self._services.children.of(self._name, above=newest, ids=open_):
            self._states[state.number] = state
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
            _prepared(state),
        )

    def _reports_of(self, state: ChildState) -> tuple[float, ...]:
        if state.number in self._reports and _is_closed(state):
            return self._reports[state.number]
        metric = self.spec.metric
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
            self._cancel(row, self._states[step.number].name)
        else:
            self._end(row, step.reason or Reason.DONE)

    def _draw(self, row: JobRow, number: int) -> None:
        """Submit a trial. A trial that cannot be submitted ends the sweep."""
        past = [self._past(self._states[state]) for state in sorted(self._states)]
        spec = self.spec
        drawn = draw(
            spec.search_space,
            spec.sampling_algorithm,
            spec.goal,
            number,
            past,
            row.name,
        )
        try:
            self._submit(row, number, drawn)
        except (Conflict, NotFound, Refused, SpecError) as error:
            data = {"message": f"trial {number} could not be submitted: {one_line(error)}"}
            self._append(row.name, Kind.REFUSED, data)

    def _submit(self, row: JobRow, number: int, drawn: Draw) -> None:
        services, task = self._services, row.plan.task
        parent = row.name if self._nodes is not None else ""
        notes: JobNotes = {"parameters": drawn.parameters, "numbers": drawn.numbers}

        def submit_as(name: str) -> None:
            spec = self.spec.trial_spec(name, drawn.parameters)
            if parent:  # what its launch has, whatever else would be chosen by now
                gpus = {"gpus_per_instance": row.plan.gang.gpus}
                spec["resources"] = {**spec.get("resources", {}), **gpus}
            submit(
                Submission(
                    spec,
                    task.code,
                    task.in_place,
                    task.base,
                    task.tools,
                    python=task.current,
                    parent=parent,
                ),
                services,
                submitter(row.spec),
                services.environments.with_deleted(),
                child=Child(row.name, number, notes),
            )

        self._submit_as(f"{row.name}_{number}", number, submit_as)

    def _past(self, state: ChildState) -> Past:
        failed = state.status is JobStatus.FAILED
        value = None if failed else state.notes.get("value")
        return Past(state.notes.get("numbers", {}), value, running=state.status not in TERMINAL)

    def _close(self, state: ChildState) -> None:
        """Record the best value of an ended trial."""
        values = self._reports_of(state)
        value = decisions.best_value(self._rules.goal, values)
        notes: JobNotes = {**state.notes, "value": value, "reports": len(values)}
        if not_finite := sum(not math.isfinite(report) for report in values):
            notes["not_finite"] = not_finite
        if not values:
            notes["metrics"] = reported_metrics(self._services.points, state.id)
        self._services.records.append(state.name, [], notes)

    def _judge(self, state: ChildState, step: Step) -> None:
        notes: JobNotes = {**state.notes, "judged": step.interval}
        if not step.why:
            self._services.records.append(state.name, [], notes)
            return
        notes["stopped"] = step.why
        row = self._services.records.get(state.name)
        event = row.event(Kind.CANCEL_ASKED, data={"by": "early_termination"})
        self._services.records.append(state.name, [event], notes)
        self._services.loops.wake(state.name)

    def _end(self, row: JobRow, reason: Reason) -> None:
        if self._nodes is not None:
            self._nodes.end()
        trials = self._trials()
        best = decisions.best(self._rules.goal, trials)
        notes: JobNotes = {"best": None if best is None else self._states[best.number].name}
        self._finish(row, reason, self._error(row, reason, trials), notes)

    def _error(self, row: JobRow, reason: Reason, trials: Sequence[Trial]) -> JobError:
        metric = self.spec.metric
        failed = [each for each in trials if each.status is JobStatus.FAILED]
        if reason is Reason.GANG_REFUSED:
            hint = "correct it, then continue: allranks job restart {job}"
            return error_of(row, reason, row.record.message, hint)
        if reason is Reason.SETUP_FAILED and (trial := decisions.unprepared(trials)) is not None:
            return self._unprepared(row, self._states[trial.number])
        if reason is Reason.TIME_LIMIT:
            message = "the sweep ran longer than limits.timeout"
            return error_of(row, reason, message, "raise limits.timeout")
        first = first_failed(self._states.values())
        if first is not None and len(failed) == len(trials):
            why = first.error["message"] if first.error is not None else "it failed"
            message = f"all {len(failed)} trials failed; the first, {first.name}: {why}"
            return error_of(row, reason, message, f"allranks job explain {first.name}")
        lost = [trial for trial in trials if trial.status is not JobStatus.COMPLETED]
        if self.spec.objective is None and lost:
            first = self._states[lost[0].number]
            why = first.error["message"] if first.error is not None else f"it is {first.status}"
            message = f"{len(lost)} of {len(trials)} trials did not complete; {first.name}: {why}"
            return error_of(row, reason, message, f"allranks job explain {first.name}")
        reporting = [state for state in self._states.values() if state.notes.get("reports")]
        if reporting:
            message = f"no trial that completed has a finite value of the metric {metric!r}"
            hint = f"see its values: allranks job metrics {reporting[0].name} --name {metric}"
            return error_of(row, reason, message, hint)
        message = f"no trial reported the metric {metric!r}"
        return error_of(row, reason, message, metric_hint(row.spec, metric, self._states))

    def _unprepared(self, row: JobRow, state: ChildState) -> JobError:
        error = state.error
        why = error["message"] if error is not None else ""
        remedy = error["hint"] if error is not None else ""
        message = f"{state.name} could not be prepared, and no other trial was tried: "
        hint = f"{remedy or 'correct it'}; then submit the sweep again"
        return error_of(row, Reason.SETUP_FAILED, message + why, hint)


def _prepared(state: ChildState) -> bool | None:
    """Whether what all trials share could be prepared. A failure that passes, or is one node's,
    is blamed on the infrastructure and says nothing."""
    error = state.error
    if error is None or error["reason"] != Reason.SETUP_FAILED or error["blame"] != Blame.USER:
        return True if state.started_at is not None else None
    return False


def _is_closed(state: ChildState) -> bool:
    return "value" in state.notes
