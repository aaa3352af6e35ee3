"""A model: files of a training with a name, versions and their origin."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from allranks.spec.data import parse_as
from allranks.spec.fields.base import Asset
from allranks.spec.fields.scalars import Free, Name, PathText, Text, Texts
from allranks.spec.job_parts import ModelType

# Types of inputs that are models.
TYPES = ("custom_model", "mlflow_model", "triton_model")


class Model(Asset):
    """``path`` is the source of its files, in the ``job`` that created them or on this machine.
    ``flavors`` are MLflow's: `{pytorch: {}}`. Flavors and ``type`` are detected from the files if
    not given. Without a name it cannot be registered, only deployed."""

    name: Name | None = None
    version: Name | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    type: ModelType | None = None
    flavors: Free | None = None
    stage: Text | None = None
    path: PathText = Field(min_length=1)
    job: Text | None = None


class NamedModel(Model):
    """A model that can be registered."""

    name: Name


def parse(data: Mapping[str, Any]) -> NamedModel:
    """The model in ``data``. Raises one SpecError with all problems."""
    hint = "files of this machine, or of a job: --job JOB --path outputs/…"
    return parse_as(NamedModel, data, hint)


class ModelVersion(NamedModel):
    """A registered version with the server's data. ``lineage`` describes the job that created it,
    ``digest`` is the hash of its manifest, ``files`` their number, ``deployments`` are the online
    ones that answer with it."""

    version: Name
    type: ModelType
    labels: tuple[str, ...] = ()
    created_at: str
    digest: str
    files: int
    size: int
    lineage: Free = Field(default_factory=dict)
    deployments: tuple[str, ...] = ()
