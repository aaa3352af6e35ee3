"""A named environment's definition: Azure ML's keys, and ours for pip."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import placed, problems, validated
from allranks.spec.fields.scalars import Name
from allranks.spec.job_parts import Environment

# Keys that do not affect how ranks run.
_IDLE = ("$schema", "auto_delete_setting", "datastore", "inference_config", "os_type")
_NAMES: TypeAdapter[str] = TypeAdapter(Name)
_CONTENT = ("image", "build", "conda_file", "pip", "requirements", "python")


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Environment:
    """The environment in ``data``, with a valid name.

    Raises one SpecError with all problems.
    """
    values = {key: value for key, value in data.items() if value is not None and key not in _IDLE}
    errors: list[Problem] = []
    for key in ("name", "version"):
        if key == "version" and key not in values:
            continue
        try:
            values[key] = _NAMES.validate_python(values.get(key))
        except ValidationError as error:
            message = problems(error, {}, {})[0] if key in values else None
            hint = "NAME on the command line, or `name:` in its file"
            if message is not None:
                hint = "as in `digits` or `digits-2`"
            errors.append(Problem(message.message if message else "is missing", key, hint=hint))
    try:
        made = Environment.model_validate(values)
    except ValidationError as error:
        errors += problems(error, values, {"": (Environment,)})
        made = None
    if made is not None and not any(getattr(made, key) for key in _CONTENT):
        hint = "an image, a conda file, or packages for pip"
        errors.append(Problem("the environment is empty", None, hint=hint))
    if errors or made is None:
        raise SpecError([placed(problem, lines or {}) for problem in errors], file=file)
    return made


def unnamed(value: Any) -> Any:
    """A job's environment: a name or an inline definition. Raises SpecError."""
    if not isinstance(value, Mapping):
        return value
    own = {key: item for key, item in value.items() if key not in _IDLE}
    return validated(Environment, own, {"": (Environment,)})
