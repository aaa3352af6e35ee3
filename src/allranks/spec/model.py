"""A model: files that training left, with a name and versions, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from allranks.spec.data import parse_as
from allranks.spec.fields.base import Part
from allranks.spec.fields.scalars import Free, Name, PathText, Text, Texts
from allranks.spec.job_parts import ModelType

# Of an input that is one.
TYPES = ("custom_model", "mlflow_model", "triton_model")


class Model(Part):
    """``path`` is where its files are taken from: one of the ``job`` that made them, or of this
    machine. ``flavors`` say who reads it, as MLflow has them: `{pytorch: {}}`; they and the
    ``type`` are seen from its files where nobody says."""

    name: Name
    version: Name | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    type: ModelType | None = None
    flavors: Free | None = None
    stage: Text | None = None
    path: PathText = Field(min_length=1)
    job: Text | None = None


def parse(data: Mapping[str, Any]) -> Model:
    """The model in ``data``. Raises one SpecError with everything that is wrong."""
    hint = "files of this machine, or of a job: --job JOB --path outputs/…"
    return parse_as(Model, data, hint)


class ModelVersion(Model):
    """One that is kept: what the server tells of it, too. ``lineage`` says what was run to make it,
    ``digest`` is that of its manifest, ``files`` how many there are."""

    version: Name
    type: ModelType
    labels: tuple[str, ...] = ()
    created_at: str
    digest: str
    files: int
    size: int
    lineage: Free = Field(default_factory=dict)
