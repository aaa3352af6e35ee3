"""`PipelineDraft`: a pipeline of the server that may still change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.agent.inside.azureml_run import PROPERTY
from allranks.api import routes
from allranks.compat.azure.v1.exceptions import no_more
from allranks.compat.azure.v1.published import (
    DRAFT,
    Kept,
    PublishedPipeline,
    create,
    every,
    unique_id,
)
from allranks.compat.azure.v1.run import PipelineRun
from allranks.sdk.connection import find_server
from allranks.spec.schedule import ManualTrigger

if TYPE_CHECKING:
    from allranks.api.common import Document


class PipelineDraft(Kept):
    """``update`` changes it, ``submit_run`` submits it, and ``publish`` keeps what it is now."""

    @classmethod
    def create(
        cls,
        workspace: Any,
        pipeline: Any,
        name: str | None = None,
        description: str | None = None,
        experiment_name: str | None = None,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool | None = None,
        tags: Mapping[str, Any] | None = None,
        properties: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> PipelineDraft:
        """Of a Pipeline or a PublishedPipeline."""
        no_more("PipelineDraft.create", more)
        job = _job(pipeline, pipeline_parameters, continue_on_step_failure)
        job["experiment_name"] = experiment_name or "Default"
        kept = {PROPERTY + key: str(value) for key, value in (properties or {}).items()}
        kept |= {key: str(value) for key, value in (tags or {}).items()}
        title = name or "pipeline"
        trigger, marked = ManualTrigger(), {DRAFT: "true", **kept}
        return cls(workspace, create(unique_id(title), title, description, trigger, job, marked))

    @staticmethod
    def list(workspace: Any, tags: Any = None, **_: Any) -> Sequence[PipelineDraft]:
        """All, or those with these tags: names, or names and values."""
        drafts = [PipelineDraft(workspace, one) for one in every("manual", marked=[DRAFT])]
        values = dict.fromkeys([tags]) if isinstance(tags, str) else dict(tags or {})
        return [
            one
            for one in drafts
            if all(k in one.tags and v in (None, one.tags[k]) for k, v in values.items())
        ]

    @property
    def tags(self) -> dict[str, str]:
        own = (DRAFT, PROPERTY)
        return {k: v for k, v in self._answer["tags"].items() if not k.startswith(own)}

    @property
    def properties(self) -> dict[str, str]:
        tags = self._answer["tags"].items()
        return {k.removeprefix(PROPERTY): v for k, v in tags if k.startswith(PROPERTY)}

    @property
    def experiment_name(self) -> str:
        return str(self._answer["job"].get("experiment_name"))

    def update(
        self,
        name: str | None = None,
        description: str | None = None,
        experiment_name: str | None = None,
        tags: Mapping[str, Any] | None = None,
        pipeline: Any = None,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool | None = None,
        **more: Any,
    ) -> None:
        """Change what is given; ``tags`` replace the tags."""
        no_more("PipelineDraft.update", more)
        before = (self._answer["job"].get("settings") or {}).get("continue_on_step_failure")
        goes_on = before if continue_on_step_failure is None else continue_on_step_failure
        job = _job(pipeline or self, pipeline_parameters, goes_on)
        job["experiment_name"] = experiment_name or self.experiment_name
        kept = dict(self._answer["tags"])
        if tags is not None:
            kept = {key: value for key, value in kept.items() if key not in self.tags}
            kept |= {key: str(value) for key, value in tags.items()}
        self._replace(name or self.name, description or self.description, job, kept)

    def submit_run(self, **more: Any) -> PipelineRun:
        """Submit it to its experiment."""
        no_more("PipelineDraft.submit_run", more)
        return self._start(self.workspace, self.experiment_name)

    def publish(self, **more: Any) -> PublishedPipeline:
        """Keep it as it is now."""
        no_more("PipelineDraft.publish", more)
        job = dict(self._answer["job"])
        return PublishedPipeline.make(self.workspace, job, self.name, self.description, None)

    def delete(self, **_: Any) -> None:
        find_server.ask(routes.delete_schedule, self.id)


def _job(
    pipeline: Any, values: Mapping[str, Any] | None, continue_on_step_failure: bool | None
) -> Document:
    return dict(pipeline.job(values, continue_on_step_failure=bool(continue_on_step_failure)))
