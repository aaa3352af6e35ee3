"""A data asset: data with a name and versions, wherever it lies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from allranks.errors import Problem, SpecError
from allranks.spec.problems import placed, problems
from allranks.spec.scalars import Name, PathText, Text, Texts
from allranks.spec.values import AssetType, Part

# Of Azure's, what says nothing of where it lies and what it is.
_IDLE = ("$schema", "auto_delete_setting", "latest_version", "datastore")


class Data(Part):
    """``path`` is any that an input of a job may have, absolute. ``job`` made it, as ``output``."""

    name: Name
    version: Name | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    type: AssetType = "uri_folder"
    path: PathText = Field(min_length=1)
    job: Text | None = None
    output: Text | None = None


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Data:
    """The asset in ``data``. Raises one SpecError with everything that is wrong."""
    given = {key: value for key, value in data.items() if value is not None and key not in _IDLE}
    try:
        return Data.model_validate(given)
    except ValidationError as error:
        found = [_told(each, given) for each in problems(error, given, {"": (Data,)})]
    raise SpecError([placed(each, lines or {}) for each in found], file=file)


def _told(problem: Problem, given: Mapping[str, Any]) -> Problem:
    if problem.where == "path" and "path" not in given:
        hint = "a path, a URI such as s3://BUCKET/PATH, or azureml://datastores/D/paths/P"
        return problem._replace(hint=hint)
    return problem
