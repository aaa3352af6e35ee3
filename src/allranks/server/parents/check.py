"""Check a job of any type without submitting it."""

from __future__ import annotations

from allranks.server.assets.planning_assets import PlanningAssets
from allranks.server.parents.notes import parent_notes
from allranks.server.parents.pipeline.create import pipeline_plan
from allranks.server.parents.sweep.create import trial_plan
from allranks.server.submission.submit import Submission, job_and_plan_notes, notes, plan
from allranks.spec.ignored_keys import job_notes
from allranks.spec.job import parse
from allranks.spec.job_type import job_type
from allranks.spec.pipeline.component import with_components

_INSIDE = "whether it fits the session that it runs in is checked when it is submitted"


def check(submission: Submission, assets: PlanningAssets) -> list[str]:
    """The notes that submitting would print, and what stands for what in a command job. Raises what
    submitting raises."""
    without_effect = job_notes(submission.spec)
    kind = job_type(submission.spec)
    if kind == "pipeline":
        pipeline_plan(submission, assets)
        spec = with_components(submission.spec, assets.components.find)
        return [*without_effect, *parent_notes(spec)]
    if kind == "sweep":
        _, first = trial_plan(submission, assets)
        noted = notes(first, assets.clusters.kind_of(first.engine))
        return [*noted, *without_effect, *parent_notes(submission.spec)]
    if assets.find is None and submission.spec.get("inside") is not None:
        parse(submission.spec)
        return [_INSIDE, *without_effect]
    made = plan(submission, assets)
    recipe, name = made.task.recipe, str(submission.spec["name"])
    kind_of_cluster = assets.clusters.kind_of(made.engine)
    noted = job_and_plan_notes(name, submission.spec, made, kind_of_cluster)
    return [*(recipe.notes if recipe is not None else ()), *noted]
