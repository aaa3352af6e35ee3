"""One live pipeline: reads its steps' jobs, does what `core.parents.pipeline` decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from allranks import clock
from allranks.core.parents import pipeline as decisions
from allranks.core.parents.pipeline import Action, Parent, Rules, StepState
from allranks.errors import Conflict, NotFound, Refused, SpecError
from allranks.events import Kind
from allranks.server.dependencies import Services
from allranks.server.jobs.view import submitter
from allranks.server.parents.controller import Controller, error_of, one_line
from allranks.server.parents.kept_nodes import KeptNodes
from allranks.server.parents.pipeline.create import create_pipeline, step_submission
from allranks.server.parents.pipeline.reuse import Reuse
from allranks.server.parents.sweep.create import create_sweep
from allranks.server.submission.submit import Submission, submit
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import Step, steps_of
from allranks.statuses import TERMINAL, VERDICTS, JobStatus, Reason
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import Child, JobRow

if TYPE_CHECKING:
    from allranks.api.jobs import JobError
    from allranks.store.jobs.job_notes import JobNotes


class Pipeline(Controller):
    """The controller of a pipeline."""

    def __init__(self, row: JobRow, services: Services) -> None:
        super().__init__(row, services)
        self._spec = PipelineJob.parse(row.spec)
        self._steps = steps_of(self._spec)
        self._order = [*self._steps]
        self._reuse = Reuse(self._spec, services)
        self._rules = Rules(
            {name: step.after for name, step in self._steps.items()},
            self._spec.settings.continue_on_step_failure,
            self._spec.limits.timeout,
        )
        # What the steps ask for whose nodes are kept.
        self._needs: Mapping[str, str] = row.notes.get("needs", {})
        self._nodes = KeptNodes(row.name, services, self._submit_as)

    def _step(self, row: JobRow) -> bool:
        record = row.record
        parent = Parent(record.went_at, record.canceled, record.message)
        self._refresh()
        states = {
            self._order[state.number]: StepState(
                state.status,
                state.given_up if record.given_up else state.canceled,
                _is_closed(state),
            )
            for state in self._states.values()
        }
        action = decisions.next_action(self._rules, parent, states, clock.now())
        if action is not None:
            self._do(row, action)
            return True
        if not self._needs:
            return False
        names = (state.name for state in self._states.values() if state.status not in TERMINAL)
        left = decisions.to_come(self._rules, parent, states)
        needs = Counter(self._needs[name] for name in left if name in self._needs)
        return self._nodes.advance(names, needs)

    def _refresh(self) -> None:
        newest = max((each.id for each in self._states.values()), default=-1)
        live = tuple(e.id for e in self._states.values() if not _is_closed(e))
        for state in self._services.children.of(self._name, above=newest, ids=live):
            self._states[state.number] = state

    def _do(self, row: JobRow, action: Action) -> None:
        if action.kind == "start":
            self._append(row.name, Kind.GO)
        elif action.kind == "cancel":
            self._cancel(row, self._states[self._order.index(action.step)].name)
        elif action.kind == "close":
            self._close(action.step)
        elif action.kind == "submit":
            try:
                self._submit(row, self._steps[action.step])
            except (Conflict, NotFound, Refused, SpecError) as error:
                message = f"the step {action.step} could not be submitted: {one_line(error)}"
                self._append(row.name, Kind.REFUSED, {"message": message})
        else:
            self._end(row, action.reason or Reason.DONE)

    def _submit(self, row: JobRow, step: Step) -> None:
        services, task = self._services, row.plan.task
        environments = services.environments.with_deleted()
        by = submitter(row.spec)
        whole = Submission(row.spec, base=task.base, tools=task.tools, python=task.current)
        jobs = {self._order[state.number]: state.name for state in self._states.values()}
        number, own_name = self._order.index(step.name), f"{row.name}_{step.name}"
        notes: JobNotes = {"step": step.name}
        reusable = None
        if step.type != "pipeline":
            submission = step_submission(whole, step, self._spec, own_name, jobs)
            reusable = self._reuse.look(step, submission, environments)
            if reusable.earlier is not None:
                notes["reused"] = reusable.earlier.name
            else:
                notes |= {"not_reused": reusable.why, "parts": reusable.parts}

        def submit_as(name: str) -> None:
            submission = step_submission(whole, step, self._spec, name, jobs)
            if step.name in self._needs:
                submission = submission._replace(parent=row.name)
            child = Child(row.name, number, notes)
            if reusable is not None and reusable.earlier is not None:
                self._take(name, submission, reusable.earlier, child)
            elif step.type == "sweep":
                create_sweep(submission, services, by, environments, child)
            elif step.type == "pipeline":
                create_pipeline(submission, services, by, environments, child)
            else:
                submit(submission, services, by, environments, child=child)

        self._submit_as(own_name, number, submit_as)

    def _take(self, name: str, submission: Submission, earlier: JobRow, child: Child) -> None:
        """Record a step that has the result of an earlier job."""
        services, plan = self._services, earlier.plan
        made = plan._replace(
            gang=plan.gang._replace(key=f"{name}.1"),
            task=plan.task._replace(job=name, parent=child.parent),
        )
        with services.admission_lock:
            services.records.get(earlier.name)  # `gc` may have removed it meanwhile
            about = {"message": f"took the result of {earlier.name}"}
            services.records.create(
                {**submission.spec}, made, about, type=earlier.type, child=child, ended=True
            )

    def _close(self, name: str) -> None:
        """Record the result of a completed step for later pipelines."""
        state = self._states[self._order.index(name)]
        parts = state.notes.get("parts")
        row = self._services.records.get(state.name)
        if parts is not None and state.status is JobStatus.COMPLETED:
            self._reuse.remember(self._steps[name], row, parts)
        notes: JobNotes = {**state.notes, "closed": True}
        notes.pop("parts", None)
        row = self._services.records.append(state.name, [], notes)
        self._states[state.number] = state._replace(notes=row.notes)

    # ------------------------------------------------------------ the end

    def _end(self, row: JobRow, reason: Reason) -> None:
        if self._needs:
            self._nodes.end()
        self._finish(row, reason, self._error(row, reason), {"outputs": self._outputs()})

    def _outputs(self) -> dict[str, list[str]]:
        """The job and its output for each output of the pipeline that was written."""
        outputs = {}
        for state in self._states.values():
            if state.status is JobStatus.COMPLETED:
                for target, own in self._steps[self._order[state.number]].bound.items():
                    outputs[target] = [state.name, own]
        return outputs

    def _error(self, row: JobRow, reason: Reason) -> JobError | None:
        if VERDICTS[reason].outcome is not JobStatus.FAILED:
            return None
        if reason is Reason.GANG_REFUSED:
            hint = "correct it and submit it again"
            return error_of(row, reason, row.record.message, hint)
        if reason is Reason.TIME_LIMIT:
            message = "the pipeline ran longer than limits.timeout"
            return error_of(row, reason, message, "raise limits.timeout")
        return _of_step(row, self._failed(), self._order)

    def _failed(self) -> list[ChildState]:
        """The failed steps, the first one first."""
        failed = [e for e in self._states.values() if e.status is JobStatus.FAILED]
        return sorted(failed, key=lambda each: each.ended_at or 0.0)


def _is_closed(state: ChildState) -> bool:
    """Whether nothing is left to do for a step's job; one with a result of another is complete."""
    return "closed" in state.notes or "reused" in state.notes


def _of_step(row: JobRow, failed: list[ChildState], order: list[str]) -> JobError:
    """The error of a pipeline with failed steps: that of the first."""
    first = failed[0]
    cause = first.error
    why = cause["message"] if cause is not None else ""
    others = f" (and {len(failed) - 1} more failed)" if len(failed) > 1 else ""
    message = f"the step {order[first.number]} failed{others}: {why}"
    remedy = f"allranks job explain {first.name}"
    if cause is not None and cause["reason"] == Reason.SETUP_FAILED:
        remedy = cause["hint"] or remedy
    hint = (
        f"{remedy}; mend it, then submit the file again: steps that completed are reused; if "
        f"nothing has to be mended: allranks job restart {row.name}"
    )
    reason = Reason(cause["reason"]) if cause is not None else Reason.RANK_EXITED
    error = error_of(row, reason, message.rstrip(": "), hint)
    if cause is not None:
        error["blame"] = cause["blame"]
        error["node"] = cause["node"]
        error["rank"] = cause["rank"]
    return error
