"""Reuse of steps: what a step's result depends on, and an earlier one that equals it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from allranks.core.packing import pack
from allranks.core.parents.reuse import Parts, fingerprint, parts_of, why_not
from allranks.core.plan import Plan, Task
from allranks.server.assets.environments import Environments
from allranks.server.dependencies import Services
from allranks.server.parents.sweep.create import trial_plan
from allranks.server.submission.submit import Submission, plan
from allranks.spec.pipeline.job import PACKAGES, PipelineJob
from allranks.spec.pipeline.steps import Step
from allranks.statuses import JobStatus
from allranks.store.jobs.job_rows import COMMAND, JobRow
from allranks.store.jobs.step_results import StepResult

# Keys of a step's spec that do not change its result.
_APART = ("name", "display_name", "description", "tags", "properties", "experiment_name", "compute")


# Variables of the submitter's shell that differ between terminals and change no result.
_OF_A_SHELL = re.compile(r"TZ|LANG|LC_\w+|TMPDIR|ALLRANKS_JOB|\w+_proxy", re.IGNORECASE)


class Reusable(NamedTuple):
    """A step about to be submitted: the ``plan`` of its job, or of its first trial; ``parts`` that
    its result depends on, None if it is never reused; ``why`` says why it runs. ``earlier`` is the
    job whose result it takes."""

    plan: Plan
    parts: Parts | None = None
    why: str = ""
    earlier: JobRow | None = None


class Reuse:
    """Looks for results of the steps of one pipeline."""

    def __init__(self, pipeline: PipelineJob, services: Services) -> None:
        self._pipeline, self._services = pipeline, services

    def look(self, step: Step, submission: Submission, environments: Environments) -> Reusable:
        """What is known of a step before it is submitted. Raises SpecError and Refused as its
        submission does."""
        services = self._services
        assets = services.planning(environments)
        if step.type == "sweep":
            _, made = trial_plan(submission, assets)
        else:
            made = plan(submission, assets)
        if not step.deterministic:
            return Reusable(made, None, "its component says `is_deterministic: false`")
        parts = self._parts(step, submission, made.task)
        if isinstance(parts, str):
            return Reusable(made, None, parts)
        if self._pipeline.settings.force_rerun:
            return Reusable(made, parts, "all steps run again: force_rerun")
        for result in services.step_results.find(fingerprint(parts)):
            if (row := self._still_there(result)) is not None:
                return Reusable(made, parts, "", row)
        latest = services.step_results.latest(self._key(step))
        why = "it has no earlier result"
        if latest is not None:
            why = why_not(parts, latest.job, latest.parts)
        return Reusable(made, parts, why)

    def remember(self, step: Step, row: JobRow, parts: Parts) -> None:
        """Record the result of a completed step, unless its inputs have changed since."""
        services, task = self._services, row.plan.task
        if row.type != COMMAND:
            task = services.records.answering(row.name).plan.task
        contents = self._contents(task)
        if isinstance(contents, str) or any(
            parts.get(f"the input {name}", "").find(content) < 0
            for name, content in contents.items()
        ):
            return
        outputs = self._outputs(task)
        if outputs is not None:
            result = StepResult(row.name, parts, outputs)
            services.step_results.add(row.id, self._key(step), fingerprint(parts), result)

    def _key(self, step: Step) -> str:
        return f"{self._pipeline.experiment_name}/{step.name}"

    def _parts(self, step: Step, submission: Submission, task: Task) -> Parts | str:
        """What the result depends on; a sentence for a step that is never reused."""
        if task.state:
            return f"it keeps the state {task.state}"
        contents = self._contents(task)
        if isinstance(contents, str):
            return contents
        environment = self._environment(submission, task)
        if environment is None:
            return "the packages of its Python are not known"
        if task.in_place:
            return "its code runs in place"
        if any(output.uri for output in task.outputs):
            return "its outputs are in a datastore"
        more: dict[str, Any] = {}
        if step.type == "sweep":
            spec = {key: value for key, value in submission.spec.items() if key not in _APART}
            left_out = ("trial", "inputs", "outputs")
            more["the sweep"] = {key: spec[key] for key in spec if key not in left_out}
            task = task._replace(parameters={})
        code = self._services.contents.of_code(task.code)
        return parts_of(task, code=code, environment=environment, contents=contents, more=more)

    def _contents(self, task: Task) -> dict[str, str] | str:
        """The content of each data input; a sentence if one is not known."""
        contents = {}
        for each in task.inputs:
            if each.text is not None:
                continue
            if each.asset:
                contents[each.name] = f"asset {each.asset}"
            elif not each.source:
                return f"the content of its input {each.name} is not known"
            elif (content := self._services.contents.of_data(Path(each.source))) is None:
                return f"its input {each.name} cannot be read"
            else:
                contents[each.name] = content
        return contents

    def _environment(self, submission: Submission, task: Task) -> str | None:
        """The environment of the ranks; None if nobody knows what is in it."""
        made = {"recipe": task.recipe, "container": task.container}
        if task.recipe is not None or task.container is not None:
            if task.container is not None and task.container.context:
                return None  # a Dockerfile's result may differ each time
            return str({key: pack(each) if each else None for key, each in made.items()})
        packages = self._pipeline.properties.get(PACKAGES)
        base = {k: v for k, v in submission.base.items() if not _OF_A_SHELL.fullmatch(k)}
        return f"{packages} {sorted(base.items())}" if packages else None

    def _outputs(self, task: Task) -> Mapping[str, str] | None:
        contents = {}
        for output in task.outputs:
            content = self._services.contents.of_data(Path(output.path)) if output.path else None
            if content is None:
                return None
            contents[output.name] = content
        return contents

    def _still_there(self, result: StepResult) -> JobRow | None:
        """The job of a result, if it completed and its outputs hold what they held."""
        records = self._services.records
        if not records.has(result.job):
            return None
        row = records.get(result.job)
        task = records.answering(row.name).plan.task
        there = row.record.status is JobStatus.COMPLETED and self._outputs(task) == result.outputs
        return row if there else None
