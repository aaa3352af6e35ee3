"""A pipeline as the API and ``--json`` show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.core.plan import OutputTask
from allranks.errors import Conflict, NotFound, SpecError
from allranks.masking import without_credentials
from allranks.server.assets import job_files
from allranks.server.dependencies import Services
from allranks.spec.fields.azureml_references import OutputOf
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import steps_of
from allranks.store.jobs.children import ChildState
from allranks.store.jobs.job_rows import JobRow

if TYPE_CHECKING:
    from allranks.api import jobs as api


def pipeline(row: JobRow, services: Services) -> api.PipelineAnswer:
    """The steps of a pipeline by name."""
    steps = Steps(row, services)
    steps.refresh()
    return {**steps.summary(), "steps": steps.all()}


def outputs(row: JobRow, services: Services) -> dict[str, str]:
    """The places of the pipeline's outputs that were written."""
    return {
        name: without_credentials(each.uri or each.path) for name, each in _written(row, services)
    }


def explain_pipeline(row: JobRow, services: Services) -> api.PipelineExplanation:
    """Of each step why it ran, was reused, failed or did not run."""
    steps = Steps(row, services)
    steps.refresh()
    shown = steps.all()
    explained: dict[str, api.ExplainedStep] = {
        name: {**step, "why": _why(step, shown)} for name, step in shown.items()
    }
    return {
        "name": row.name,
        "type": row.type,
        "error": row.error,
        "steps": explained,
    }


def explain_step(row: JobRow) -> api.StepExplanation:
    """Why a completed step ran or was reused. Raises Conflict for a child of a sweep."""
    reused = row.notes.get("reused")
    not_reused = row.notes.get("not_reused")
    if reused is None and not_reused is None:
        hint = f"see it: allranks job show {row.name}"
        raise Conflict(f"{row.name} is {row.record.status}: nothing to explain", hint=hint)
    why = f"reused from {reused}" if reused else f"not reused: {not_reused}"
    return {"name": row.name, "type": "step", "error": None, "why": why}


def _why(step: api.StepAnswer, steps: Mapping[str, api.StepAnswer]) -> str:
    if step["job"] is None:
        waits = [each for each in step["after"] if steps[each]["status"] != "Completed"]
        return f"not run: it needs {', '.join(waits)}" if waits else "not run"
    if step["reused"]:
        return f"reused from {step['reused']}"
    if step["status"] == "Failed":
        return f"failed: {step['error'] or 'see its log'}"
    if step["status"] == "Canceled":
        return "canceled"
    return f"not reused: {step['not_reused']}" if step["not_reused"] else "ran"


def output_folders(row: JobRow, services: Services) -> dict[str, Path]:
    """The folders of the outputs on the server's disk, as `named-outputs/NAME/`."""
    return {
        f"named-outputs/{name}/": Path(each.path).parent if each.is_file else Path(each.path)
        for name, each in _written(row, services)
        if each.path and not each.uri
    }


def _written(row: JobRow, services: Services) -> Iterator[tuple[str, OutputTask]]:
    for name in row.notes.get("outputs", {}):
        of = OutputOf(row.name, name)
        try:
            job, own = job_files.written_by(row, of, services.records.answering)
        except (NotFound, SpecError):
            continue  # the step's job was deleted
        for output in job.plan.task.outputs if job is not None else ():
            if output.name == own.output:
                yield name, output


class Steps:
    """The steps of a pipeline for its viewers. Ended ones are read once."""

    def __init__(self, row: JobRow, services: Services) -> None:
        self._name, self._services = row.name, services
        self._steps = steps_of(PipelineJob.parse(row.spec))
        self._order = [*self._steps]
        self.states: dict[int, ChildState] = {}

    def refresh(self) -> list[int]:
        """Read the record; returns the numbers of steps that changed."""
        changed = []
        for state in self._services.children.of(self._name):
            if self.states.get(state.number) != state:
                changed.append(state.number)
                self.states[state.number] = state
        return changed

    def summary(self) -> api.PipelineSummary:
        """The number of steps, and of those with a job by its status."""
        counts = Counter(str(state.status) for state in self.states.values())
        return {"total_steps": len(self._order), "counts": dict(counts)}

    def all(self) -> dict[str, api.StepAnswer]:
        """All steps in the order they run."""
        return {name: self.shown(number) for number, name in enumerate(self._order)}

    def shown(self, number: int) -> api.StepAnswer:
        """One step. ``job`` and ``status`` are None before it is submitted; ``duration`` in
        seconds."""
        name = self._order[number]
        step = self._steps[name]
        shown: api.StepAnswer = {
            "step": name,
            "type": step.type,
            "component": step.component or None,
            "after": list(step.after),
            "job": None,
            "status": None,
            "reused": None,
            "not_reused": None,
            "duration": None,
            "error": None,
        }
        state = self.states.get(number)
        if state is None:
            return shown
        shown["job"] = state.name
        shown["status"] = str(state.status)
        shown["reused"] = state.notes.get("reused")
        shown["not_reused"] = state.notes.get("not_reused")
        if state.started_at is not None and state.ended_at is not None:
            shown["duration"] = state.ended_at - state.started_at
        if state.error is not None:
            shown["error"] = state.error["message"]
        return shown
