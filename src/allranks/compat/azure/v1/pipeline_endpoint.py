"""`PipelineEndpoint`: versions of a pipeline behind one name and one address.

It is a published pipeline whose job is that of its default version; a tag lists the versions, which
are published pipelines of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.compat.azure.v1.exceptions import UserErrorException, no_more
from allranks.compat.azure.v1.published import (
    DEFAULT,
    Kept,
    PublishedPipeline,
    create,
    every,
    published,
    unique_id,
)
from allranks.compat.azure.v1.run import PipelineRun
from allranks.spec.schedule import ENDPOINT_VERSIONS, ManualTrigger

if TYPE_CHECKING:
    from allranks.api.common import Document


class PipelineVersion(NamedTuple):
    """A version of an endpoint."""

    version: str
    pipeline: PublishedPipeline


class PipelineEndpoint(Kept):
    """Versions "0", "1", … of a pipeline, of which one is the default."""

    # What ``Experiment.submit`` passes on.
    submit_keywords = (
        "pipeline_parameters",
        "pipeline_version",
        "continue_on_step_failure",
        "regenerate_outputs",
    )

    @classmethod
    def publish(
        cls, workspace: Any, name: str, pipeline: Any, description: str | None = None, **more: Any
    ) -> PipelineEndpoint:
        """Create an endpoint whose version "0" is a Pipeline or PublishedPipeline. Raises
        UserErrorException if the name exists."""
        no_more("PipelineEndpoint.publish", more)
        if any(one.name == name for one in cls.list(workspace, active_only=False)):
            hint = "PipelineEndpoint.get(…).add(…) adds a version"
            raise UserErrorException(f"there is a pipeline endpoint {name!r}", hint=hint)
        first = published(workspace, pipeline, name)
        tags = {ENDPOINT_VERSIONS: json.dumps([first.id]), DEFAULT: "0"}
        job = dict(first._answer["job"])
        answer = create(unique_id(name), name, description, ManualTrigger(), job, tags)
        return cls(workspace, answer)

    @classmethod
    def get(
        cls, workspace: Any, id: str | None = None, name: str | None = None, **_: Any
    ) -> PipelineEndpoint:
        """By its id or its name. Raises UserErrorException."""
        if id is not None:
            made: PipelineEndpoint = super().get(workspace, id)
            return made
        endpoints = cls.list(workspace, active_only=False)
        for one in endpoints:
            if one.name == name:
                return one
        hint = f"there are: {', '.join(one.name for one in endpoints) or 'none'}"
        raise UserErrorException(f"there is no pipeline endpoint {name!r}", hint=hint)

    @staticmethod
    def list(workspace: Any, active_only: bool = True, **_: Any) -> Sequence[PipelineEndpoint]:
        endpoints = (
            PipelineEndpoint(workspace, one) for one in every("manual", marked=[ENDPOINT_VERSIONS])
        )
        return [one for one in endpoints if not active_only or one.status == "Active"]

    # ------------------------------------------------------------ versions

    def get_default_version(self) -> str:
        return self._answer["tags"][DEFAULT]

    def list_versions(self) -> Sequence[PipelineVersion]:
        numbered = enumerate(self._ids())
        return [PipelineVersion(str(number), self._published(id)) for number, id in numbered]

    def list_pipelines(self, active_only: bool = True, **_: Any) -> Sequence[PublishedPipeline]:
        pipelines = [version.pipeline for version in self.list_versions()]
        return [one for one in pipelines if not active_only or one.status == "Active"]

    def get_pipeline(self, version: str | None = None, **_: Any) -> PublishedPipeline:
        """Of a version, or of the default one. Raises UserErrorException."""
        return self._published(self._ids()[self._number(version)])

    def add(self, pipeline: Any, **_: Any) -> None:
        """Add a Pipeline or PublishedPipeline as the latest version."""
        self._add(pipeline)

    def add_default(self, pipeline: Any, **_: Any) -> None:
        """The same, and make it the default."""
        self._change(default=self._add(pipeline))

    def set_default_version(self, version: str, **_: Any) -> None:
        """Raises UserErrorException if there is no such version."""
        self._change(default=self._number(version))

    def set_default(self, pipeline: PublishedPipeline, **_: Any) -> None:
        """Make a version of this pipeline the default. Raises UserErrorException."""
        if pipeline.id not in self._ids():
            hint = "add_default(…) adds it"
            raise UserErrorException(f"{pipeline.name} is no version of {self.name}", hint=hint)
        self._change(default=self._ids().index(pipeline.id))

    def set_name(self, name: str, **_: Any) -> None:
        self._change(name=name)

    def set_description(self, description: str, **_: Any) -> None:
        self._change(description=description)

    # ------------------------------------------------------------ runs

    @property
    def endpoint(self) -> str:
        """As a published pipeline's. Programs append `/VERSION`; or they put `Name?name=NAME` with
        `&pipelineVersion=VERSION` in the place of `Id` and what follows."""
        return f"{super().endpoint}?by=Id/{self.id}"

    def job(
        self,
        pipeline_parameters: Mapping[str, Any] | None = None,
        continue_on_step_failure: bool | None = None,
        regenerate_outputs: bool | None = None,
        pipeline_version: str | None = None,
    ) -> Document:
        """The job of a version, for ``Experiment.submit``."""
        version = self.get_pipeline(pipeline_version)
        return version.job(pipeline_parameters, continue_on_step_failure, regenerate_outputs)

    def submit(
        self,
        experiment_name: str,
        pipeline_parameters: Mapping[str, Any] | None = None,
        pipeline_version: str | None = None,
        continue_on_step_failure: bool | None = None,
        regenerate_outputs: bool | None = None,
        **more: Any,
    ) -> PipelineRun:
        """Submit a version, or the default one. Raises UserErrorException."""
        no_more("PipelineEndpoint.submit", more)
        self._check_active()
        return self.get_pipeline(pipeline_version).submit(
            self.workspace,
            experiment_name,
            pipeline_parameters,
            continue_on_step_failure,
            regenerate_outputs,
        )

    # ------------------------------------------------------------ parts

    def _ids(self) -> Sequence[str]:
        ids: Sequence[str] = json.loads(self._answer["tags"][ENDPOINT_VERSIONS])
        return ids

    def _published(self, id: str) -> PublishedPipeline:
        pipeline: PublishedPipeline = PublishedPipeline.get(self.workspace, id)
        return pipeline

    def _number(self, version: str | None) -> int:
        text = self.get_default_version() if version is None else str(version)
        if text.isdecimal() and int(text) < len(self._ids()):
            return int(text)
        hint = f"its versions are 0 to {len(self._ids()) - 1}"
        raise UserErrorException(f"{self.name} has no version {text!r}", hint=hint)

    def _add(self, pipeline: Any) -> int:
        added = published(self.workspace, pipeline, self.name)
        self._refresh()
        self._change(ids=[*self._ids(), added.id])
        return len(self._ids()) - 1

    def _change(
        self,
        name: str | None = None,
        description: str | None = None,
        default: int | None = None,
        ids: Sequence[str] | None = None,
    ) -> None:
        if ids is None:
            self._refresh()
        version = self._number(None) if default is None else default
        versions = self._ids() if ids is None else ids
        self._replace(
            name or self.name,
            description or self.description,
            dict(self._published(versions[version])._answer["job"]),
            {ENDPOINT_VERSIONS: json.dumps(versions), DEFAULT: str(version)},
        )
