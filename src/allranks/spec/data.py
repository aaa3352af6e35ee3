"""A data asset: data with a name and versions, at any address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field

from allranks.errors import SpecError
from allranks.spec.fields.base import Asset, Part
from allranks.spec.fields.problems import validated
from allranks.spec.fields.scalars import Name, PathText, Text, Texts
from allranks.spec.job_parts import AssetType

# Azure's keys without effect here.
_IDLE = ("$schema", "auto_delete_setting", "latest_version", "datastore")


class Data(Asset):
    """``path`` is an absolute path or address, as for a job's input. ``job`` and ``output`` name
    what created it."""

    name: Name
    version: Name | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    type: AssetType = "uri_folder"
    path: PathText = Field(min_length=1)
    job: Text | None = None
    output: Text | None = None


Of = TypeVar("Of", bound=Part)


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Data:
    """The asset in ``data``. Raises one SpecError with all problems."""
    hint = "a path, a URI such as s3://BUCKET/PATH, or azureml://datastores/D/paths/P"
    return parse_as(Data, data, hint, lines, file)


def parse_as(
    kind: type[Of],
    data: Mapping[str, Any],
    hint: str,
    lines: Mapping[str, int] | None = None,
    file: str | None = None,
) -> Of:
    """Like ``parse``, for other assets with a name, versions and a path. ``hint`` describes the
    path."""
    values = {key: value for key, value in data.items() if value is not None and key not in _IDLE}
    try:
        return validated(kind, values, {"": (kind,)}, lines, file)
    except SpecError as error:
        if "path" in values:
            raise
        errors = [e._replace(hint=hint) if e.where == "path" else e for e in error.problems]
        raise SpecError(errors, file=file) from None
