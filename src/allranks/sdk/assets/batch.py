"""Batch endpoints: deployments, and the jobs that invocations are."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import BaseModel

from allranks.api import routes
from allranks.errors import NotFound, UsageError
from allranks.sdk.assets.computes import Poller
from allranks.sdk.assets.endpoints import DeploymentRecord
from allranks.sdk.connection import find_server
from allranks.sdk.submit.create import create
from allranks.sdk.submit.send import send
from allranks.spec.batch import (
    DEPLOYMENT_TAG,
    ENDPOINT_TAG,
    BatchEndpoint,
    BatchKeys,
    invocation,
)
from allranks.spec.pipeline.component import is_data
from allranks.spec.pipeline.job import PipelineJob

if TYPE_CHECKING:
    from allranks.api.batch import BatchDeploymentAnswer, BatchEndpointAnswer
    from allranks.api.common import Document
    from allranks.api.jobs import CreatedJob, ListedJob

# `allranks.sdk.Job`, which this may not import.
JobT = TypeVar("JobT")


def jobs_address(server: str, endpoint: str) -> str:
    """Where a request of Azure's makes a job of a batch endpoint."""
    return server + routes.invoke_batch_endpoint.at(endpoint)[1]


def deployment_of(endpoint: str, name: str | None) -> BatchDeploymentAnswer:
    """A deployment, or the default one. Raises NotFound and UsageError."""
    answer = find_server.ask(routes.show_batch_endpoint, endpoint)
    chosen = name or answer["default_deployment"]
    for item in answer["deployments"]:
        if item["name"] == chosen:
            return item
    has = ", ".join(item["name"] for item in answer["deployments"]) or "none yet"
    if name is None:
        hint = f"--deployment NAME, or allranks endpoint update {endpoint} --default NAME: {has}"
        raise UsageError(f"{endpoint} has no default deployment", hint=hint)
    raise NotFound(f"{endpoint} has no deployment {name!r}", hint=f"there are: {has}")


def submit(
    endpoint: str,
    deployment: str | None,
    inputs: Mapping[str, Any],
    base: Path,
    *,
    outputs: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    keys: Mapping[str, Any] | None = None,
) -> CreatedJob:
    """Score data: submits the job of a deployment. The input that is called "" gets the name that
    the deployment has for its data. ``keys`` are those of a job: `name`, `experiment_name`, …"""
    chosen = deployment_of(endpoint, deployment)
    several = dict(inputs)
    if "" in several:
        several[_data_input(chosen)] = several.pop("")
    places = {name: value for name, value in (outputs or {}).items() if value}
    job = invocation(chosen["spec"], chosen["component"], several, places, overrides or {})
    tags = {**((keys or {}).get("tags") or {}), **job["tags"]}
    made = PipelineJob.parse({**job, **(keys or {}), "tags": tags})
    return create(made, base, {}, allow_large=True, data=True)


def _data_input(deployment: BatchDeploymentAnswer) -> str:
    inputs: Mapping[str, Any] = deployment["component"].get("inputs") or {}
    names = [name for name, item in inputs.items() if is_data(item or {})]
    if len(names) != 1:
        hint = f"name it: --set inputs.NAME.path=PATH; there are: {', '.join(inputs) or 'none'}"
        raise UsageError(f"{deployment['name']} has {len(names)} inputs for data", hint=hint)
    return names[0]


def jobs_of(endpoint: str, deployment: str | None = None) -> builtins.list[ListedJob]:
    """The jobs of an endpoint or a deployment, the newest first."""
    tags = [f"{ENDPOINT_TAG}={endpoint}"]
    if deployment is not None:
        tags.append(f"{DEPLOYMENT_TAG}={deployment}")
    return find_server.ask(routes.list_jobs, tag=tags, limit=1000)


class BatchEndpointRecord(BatchEndpoint):
    """A batch endpoint as the server has it. It may be changed and given to
    ``begin_create_or_update`` again."""

    @classmethod
    def of(cls, answer: BatchEndpointAnswer) -> BatchEndpointRecord:
        return cls(**answer["spec"])

    @property
    def scoring_uri(self) -> str:
        """Where Azure's requests are sent to, with a token of this server."""
        with find_server.connect() as client:
            return jobs_address(client.url, self.name)

    @property
    def provisioning_state(self) -> str:
        """Azure ML's word: there is nothing to wait for."""
        return "Succeeded"


class BatchEndpoints(Generic[JobT]):
    """Operations on batch endpoints. All raise AllranksError with a hint. ``job``: the class of the
    jobs that are returned."""

    def __init__(self, job: Callable[[Any], JobT]) -> None:
        self._job = job

    def begin_create_or_update(self, endpoint: BatchEndpoint) -> Poller[BatchEndpointRecord]:
        keys = _keys(endpoint)
        answer = find_server.ask(routes.put_batch_endpoint, endpoint.name, body=keys)
        return Poller(BatchEndpointRecord.of(answer))

    def get(self, name: str) -> BatchEndpointRecord:
        return BatchEndpointRecord.of(find_server.ask(routes.show_batch_endpoint, name))

    def list(self) -> builtins.list[BatchEndpointRecord]:
        return [
            BatchEndpointRecord.of(answer)
            for answer in find_server.ask(routes.list_batch_endpoints)
        ]

    def begin_delete(self, name: str) -> Poller[None]:
        """Delete it with its deployments. Its jobs stay."""
        find_server.ask(routes.delete_batch_endpoint, name)
        return Poller(None)

    def invoke(
        self,
        endpoint_name: str,
        *,
        deployment_name: str | None = None,
        input: Any = None,
        inputs: Mapping[str, Any] | None = None,
        outputs: Mapping[str, Any] | None = None,
        experiment_name: str | None = None,
        job_name: str | None = None,
        params_override: builtins.list[Mapping[str, Any]] | None = None,
    ) -> JobT:
        """Score data; returns the job, a pipeline whose output is `score`. ``input`` is the one
        that a deployment has; ``params_override`` may have its settings:
        `mini_batch_size`, `instance_count`, `output_file_name`, …"""
        if input is not None and inputs is not None:
            raise UsageError("input and inputs are given", hint="give one of them")
        several = (inputs or {}) if input is None else {"": input}
        overrides = {
            key.rpartition(".")[2]: value
            for item in params_override or ()
            for key, value in item.items()
        }
        own = {"experiment_name": experiment_name, "name": job_name}
        made = submit(
            endpoint_name,
            deployment_name,
            {name: _plain(item) for name, item in several.items()},
            Path.cwd(),
            outputs={name: _plain(item) for name, item in (outputs or {}).items()},
            overrides=overrides,
            keys={key: value for key, value in own.items() if value is not None},
        )
        return self._job(made)

    def list_jobs(self, endpoint_name: str) -> builtins.list[JobT]:
        """The jobs of its deployments, the newest first."""
        return [*map(self._job, jobs_of(endpoint_name))]


class BatchDeployments(Generic[JobT]):
    """Operations on batch deployments. As ``BatchEndpoints``."""

    def __init__(self, job: Callable[[Any], JobT]) -> None:
        self._job = job

    def begin_create_or_update(
        self, deployment: BatchKeys | DeploymentRecord, *, skip_script_validation: bool = False
    ) -> Poller[DeploymentRecord]:
        """Create or replace a deployment. Its paths start in the working folder."""
        from allranks.sdk.submit.deployment import prepare_deployment  # lazy: as in endpoints

        body, snapshots = prepare_deployment(_keys(deployment), Path.cwd(), is_batch=True)
        to = routes.put_batch_deployment.at(deployment.endpoint_name, deployment.name)
        with find_server.connect() as client:
            made = send(client, body, snapshots, to=to)
        return Poller(_record(made))

    def get(self, name: str, endpoint_name: str) -> DeploymentRecord:
        return _record(deployment_of(endpoint_name, name))

    def list(self, endpoint_name: str) -> builtins.list[DeploymentRecord]:
        answer = find_server.ask(routes.show_batch_endpoint, endpoint_name)
        return [*map(_record, answer["deployments"])]

    def begin_delete(self, name: str, endpoint_name: str) -> Poller[None]:
        find_server.ask(routes.delete_batch_deployment, endpoint_name, name)
        return Poller(None)

    def list_jobs(self, deployment_name: str, endpoint_name: str) -> builtins.list[JobT]:
        """The jobs that it was invoked with, the newest first."""
        return [*map(self._job, jobs_of(endpoint_name, deployment_name))]


def _record(answer: BatchDeploymentAnswer) -> DeploymentRecord:
    state: Any = {"state": "Ready", **answer}
    return DeploymentRecord(state)


def _keys(thing: BatchEndpoint | BatchKeys | DeploymentRecord) -> Document:
    """The keys of a file that were set, also of a part that was left out."""
    if isinstance(thing, DeploymentRecord):
        return thing.to_dict()
    data = thing.model_dump(mode="json", exclude_unset=True, by_alias=True)
    for key in ("defaults", "settings"):
        part = getattr(thing, key, None)
        if isinstance(part, BaseModel):
            keys = part.model_dump(mode="json", exclude_unset=True)
            data |= {key: keys} if keys else {}
    for key in ("component", "job_definition"):
        if isinstance(thing, BatchKeys) and isinstance(data.get(key), Mapping):
            data[key] = dict(data[key])
    return data


def _plain(value: Any) -> Any:
    """An input or output of a program as a file has it."""
    if hasattr(value, "declared"):  # Azure's Input of a number or a text
        return value.declared()
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", exclude_unset=True)
    if isinstance(value, str | int | float | bool | Mapping):
        return value
    raise UsageError(f"{value!r} is no input", hint="give Input(type=…, path=…)")
