"""`azureml.core.Experiment`: submits jobs and finds them again."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.compat.azure.absent import Absent
from allranks.compat.azure.v1.exceptions import UserErrorException, no_more, not_there
from allranks.compat.azure.v1.interactive import InteractiveRun
from allranks.compat.azure.v1.published import PublishedPipeline
from allranks.compat.azure.v1.run import PROPERTY, PipelineRun, Run, run_of
from allranks.sdk import Client
from allranks.sdk.jobs.follow import submission_notes
from allranks.spec.any_job import AnyJob
from allranks.spec.job import CommandJob
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.sweep.job import SweepJob

if TYPE_CHECKING:
    from allranks.api.common import Document

_KINDS: Mapping[str, type[AnyJob]] = {
    "command": CommandJob,
    "sweep": SweepJob,
    "pipeline": PipelineJob,
}


class Experiment(Absent):
    """Jobs that belong together, by their name."""

    def __init__(self, workspace: Any, name: str, **_: Any) -> None:
        self.workspace, self.name = workspace, name

    def submit(self, config: Any, tags: Mapping[str, str] | None = None, **more: Any) -> Run:
        """Submit a ScriptRunConfig, an estimator, a HyperDriveConfig or a Pipeline. ``more`` are
        a pipeline's ``pipeline_parameters`` and ``regenerate_outputs``. Raises AllranksError."""
        if not hasattr(config, "job"):
            hint = "give a ScriptRunConfig, a HyperDriveConfig or a Pipeline"
            raise UserErrorException(f"{type(config).__name__} cannot be submitted", hint=hint)
        job = dict(config.job(**_for(config, more)))
        job["experiment_name"] = self.name
        if tags:
            job["tags"] = {key: str(each) for key, each in tags.items()}
        made = Client().jobs.create_or_update(_KINDS[job["type"]].parse(job))
        submission_notes(made.to_dict(), sys.stderr)
        return run_of(made, self.workspace, self)

    def start_logging(
        self,
        *,
        outputs: object = None,
        snapshot_directory: str | None = None,
        display_name: str | None = None,
        **more: Any,
    ) -> InteractiveRun:
        """Begin a run that this program logs to; it ends with ``complete``, or the program. Its
        files are those it uploads; the folder `outputs` is made, to which programs write them
        first. Raises RunEnvironmentException."""
        no_more("Experiment.start_logging", more)
        Path("outputs").mkdir(exist_ok=True)
        options = {"snapshot_directory": snapshot_directory, "display_name": display_name}
        return InteractiveRun(self, options)

    def get_runs(
        self,
        type: str | None = None,
        tags: Any = None,
        properties: Any = None,
        include_children: bool = False,
        **_: Any,
    ) -> Iterator[Run]:
        """Its runs, the newest first."""
        filters = {tags: None} if isinstance(tags, str) else dict(tags or {})
        added = {properties: None} if isinstance(properties, str) else dict(properties or {})
        filters |= {f"{PROPERTY}{key}": value for key, value in added.items()}
        jobs = Client().jobs.list(experiment_name=self.name, tags=filters, limit=1000)
        return (run_of(job, self.workspace, self) for job in jobs)

    @staticmethod
    def list(workspace: Any, *_: Any, **__: Any) -> Any:
        return [*workspace.experiments.values()]

    def get_portal_url(self) -> str:
        return str(Client().jobs.list(experiment_name=self.name, limit=1)[0].studio_url)

    def __repr__(self) -> str:
        return f"Experiment(Name: {self.name})"


Run.experiment_type = Experiment
PipelineRun.published_type = PublishedPipeline


def _for(config: Any, keywords: Document) -> Document:
    """The keywords of ``submit`` that a pipeline takes. Raises NotThere for others."""
    accepted = getattr(config, "submit_keywords", ())
    for key, value in keywords.items():
        if key not in accepted and value is not None:
            not_there(f"the argument `{key}` of Experiment.submit", "leave it out")
    return {key: value for key, value in keywords.items() if key in accepted}
