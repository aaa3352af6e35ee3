"""The forms of actions: an input for each value that a job has now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.api.jobs import FileAnswer
    from allranks.api.metrics import ShownJob

# Keys of a job whose values a restart usually changes, and groups of such keys.
_KEYS = ("display_name", "experiment_name", "description", "command", "compute")
_GROUPS = (
    "inputs",
    "environment_variables",
    "search_space",
    "resources",
    "distribution",
    "limits",
)
# What belongs to a value but is no value itself.
_NOT = ("type", "mode")
# The prefix of inputs that are keys of the job; and paths in a picker.
SET, _PATHS = "set.", 1000


class Field(NamedTuple):
    """An input named by a key of the job, with its present value."""

    key: str
    value: str

    @property
    def is_long(self) -> bool:
        return "\n" in self.value or self.key in ("command", "description")


def fields(job: ShownJob) -> list[Field]:
    """What a restart may change, by its key."""
    spec: Mapping[str, Any] = job["spec"]
    inputs = [Field(key, _text(spec[key])) for key in _KEYS if _is_plain(spec.get(key))]
    for group in _GROUPS:
        inputs += _below(group, spec.get(group))
    return inputs


def changes(job: ShownJob, form: Mapping[str, str]) -> list[str]:
    """The keys whose inputs differ from the job's values, as ``KEY=VALUE``. Raises UsageError for a
    key that the form did not have."""
    present = {field.key: field.value for field in fields(job)}
    changed = []
    for name, value in form.items():
        if not name.startswith(SET):
            continue
        key, text = name.removeprefix(SET), value.replace("\r\n", "\n")
        if key not in present:
            hint = f"{job['name']} has {', '.join(present)}"
            raise UsageError(f"the job has no value {key[:80]!r}", where="restart", hint=hint)
        if text != present[key]:
            changed.append(f"{key}={text}")
    return changed


def paths(files: list[FileAnswer]) -> list[str]:
    """The folders and files that a model may be made of, as registering names them."""
    names: dict[str, None] = {}
    for file in files:
        path = file["path"].removeprefix("artifacts/")
        if path.startswith("attempts/"):
            continue
        parts = path.split("/")
        names |= dict.fromkeys("/".join(parts[:end]) for end in range(1, len(parts)))
        names[path] = None
    return sorted(names)[:_PATHS]


def _below(path: str, value: Any) -> Iterator[Field]:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if key not in _NOT and "." not in key:
                yield from _below(f"{path}.{key}", part)
    elif _is_plain(value):
        yield Field(path, _text(value))


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
