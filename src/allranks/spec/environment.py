"""A named environment's definition: Azure ML's keys, and ours for pip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import placed, problems
from allranks.spec.fields.scalars import Name
from allranks.spec.job_parts import Environment

# Keys that do not affect how ranks run.
_IDLE = ("$schema", "datastore", "inference_config", "os_type")
_NAMES: TypeAdapter[str] = TypeAdapter(Name)
_CONTENT = ("image", "build", "conda_file", "pip", "requirements", "python")


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Environment:
    """The environment in ``data``, with a valid name.

    Raises one SpecError with all problems.
    """
    given = {key: value for key, value in data.items() if value is not None and key not in _IDLE}
    found: list[Problem] = []
    for key in ("name", "version"):
        if key == "version" and key not in given:
            continue
        try:
            given[key] = _NAMES.validate_python(given.get(key))
        except ValidationError as error:
            message = problems(error, {}, {})[0] if key in given else None
            hint = "NAME on the command line, or `name:` in its file"
            if message is not None:
                hint = "as in `digits` or `digits-2`"
            found.append(Problem(message.message if message else "is missing", key, hint=hint))
    try:
        made = Environment.model_validate(given)
    except ValidationError as error:
        found += problems(error, given, {"": (Environment,)})
        made = None
    if made is not None and not any(getattr(made, key) for key in _CONTENT):
        hint = "an image, a conda file, or packages for pip"
        found.append(Problem("the environment is empty", None, hint=hint))
    if found or made is None:
        raise SpecError([placed(each, lines or {}) for each in found], file=file)
    return made


def unnamed(value: Any) -> Any:
    """A job's environment: a name or an inline definition. Raises SpecError."""
    if not isinstance(value, Mapping):
        return value
    try:
        return Environment.model_validate({k: v for k, v in value.items() if k not in _IDLE})
    except ValidationError as error:
        raise SpecError(problems(error, value, {"": (Environment,)})) from None
