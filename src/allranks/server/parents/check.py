"""Check a job of any type without submitting it."""

from __future__ import annotations

from allranks.server.assets.components import Components
from allranks.server.assets.data_locations import Find
from allranks.server.assets.datastores import Datastores
from allranks.server.assets.environments import Environments
from allranks.server.clusters.clusters import Clusters
from allranks.server.parents.notes import parent_notes
from allranks.server.parents.pipeline.create import pipeline_plan
from allranks.server.parents.sweep.create import trial_plan
from allranks.server.submission.submit import Submission, job_and_plan_notes, notes, plan
from allranks.settings import Home
from allranks.spec.ignored_keys import job_notes
from allranks.spec.job import parse
from allranks.spec.job_type import job_type
from allranks.spec.pipeline.component import with_components

_INSIDE = "whether it fits the session that it runs in is checked when it is submitted"


def check(
    submission: Submission,
    home: Home,
    clusters: Clusters,
    environments: Environments,
    datastores: Datastores,
    components: Components,
    find: Find | None = None,
) -> list[str]:
    """The notes that submitting would print, and what stands for what in a command job. ``find``
    looks up other jobs; without it those are not checked. Raises what submitting raises."""
    where = (home, clusters, environments, datastores, find)
    without_effect = job_notes(submission.spec)
    kind = job_type(submission.spec)
    if kind == "pipeline":
        pipeline_plan(submission, *where, component=components.find)
        spec = with_components(submission.spec, components.find)
        return [*without_effect, *parent_notes(spec)]
    if kind == "sweep":
        _, first = trial_plan(submission, *where)
        noted = notes(first, clusters.kind_of(first.engine))
        return [*noted, *without_effect, *parent_notes(submission.spec)]
    if find is None and submission.spec.get("inside") is not None:
        parse(submission.spec)
        return [_INSIDE, *without_effect]
    made = plan(submission, *where)
    recipe, name = made.task.recipe, str(submission.spec["name"])
    noted = job_and_plan_notes(name, submission.spec, made, clusters.kind_of(made.engine))
    return [*(recipe.notes if recipe is not None else ()), *noted]
