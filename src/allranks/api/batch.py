"""Batch endpoints: what ``/batch-endpoints`` answers."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from allranks.api.common import Document
from allranks.api.jobs import CreatedJob


class BatchDeploymentAnswer(TypedDict):
    """``spec`` is the deployment as it was given, ``component`` the pipeline component of its
    jobs; ``model``: registered, as ``azureml:NAME:VERSION``."""

    name: str
    endpoint: str
    type: Literal["model", "pipeline"]
    model: str | None
    component: Document
    created_by: str
    created_at: str
    notes: list[str]
    spec: Document


class BatchEndpointAnswer(TypedDict):
    """``default_deployment`` answers invocations that name none."""

    name: str
    type: Literal["batch"]
    description: str | None
    tags: dict[str, str]
    default_deployment: str | None
    created_by: str
    created_at: str
    deployments: list[BatchDeploymentAnswer]
    notes: list[str]
    spec: Document


class BatchInvocation(TypedDict):
    """A job of an endpoint in Azure's words: the last part of ``id`` is its ``name``;
    ``properties`` has its `status` again."""

    id: str
    name: str
    status: str
    properties: Document


class BatchJob(CreatedJob, BatchInvocation):
    """What a request of Azure's is answered with."""
