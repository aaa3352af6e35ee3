"""When a step takes the result of an earlier one: what its result depends on, compared. Pure."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from allranks.core.packing import pack
from allranks.core.plan import Task

# What the result of a step depends on, by name, each as a text that is compared.
Parts = Mapping[str, str]

# Fields of a task that say who runs it and where, not what it does.
_APART = frozenset(
    {
        "job",
        "experiment",
        "record",
        "base",
        "code",
        "inputs",
        "outputs",
        "environments",
        "environment",
        "environment_asked",
        "uv",
        "tools",
        "cache",
        "cache_limit",
        "continues",
        "previous",
        "parent",
        "keep_work",
        "timeout",
        "hang_timeout",
        "flight_recorder",
        "on_failure",
        "warm",
        "in_place",
        "recipe",
        "container",
        "command",
        "variables",
        "metrics",
        "parameters",
    }
)


def parts_of(
    task: Task,
    *,
    code: str,
    environment: str,
    contents: Mapping[str, str],
    more: Mapping[str, Any] | None = None,
) -> Parts:
    """What the result of a task depends on. ``code``, ``environment`` and the ``contents`` of data
    inputs by name say what these hold; ``more`` is compared as well."""
    packed = pack(task)
    inputs = {
        f"the input {item.name}": _text(
            [item.text, contents.get(item.name), item.mode, item.unpack, item.sharded]
        )
        for item in task.inputs
    }
    return {
        "the command": task.command,
        "the code": code,
        "the environment": environment,
        "the variables": _text(dict(task.variables)),
        "the parameters": _text(dict(task.parameters)),
        "the metrics": _text(packed["metrics"]),
        "the settings": _text({key: packed[key] for key in packed if key not in _APART}),
        "the outputs": _text([[e.name, e.is_file, e.uri, e.mode] for e in task.outputs]),
        **inputs,
        **{key: _text(value) for key, value in (more or {}).items()},
    }


def fingerprint(parts: Parts) -> str:
    """The same for equal parts only."""
    return hashlib.sha256(_text(dict(parts)).encode()).hexdigest()


def changed(parts: Parts, earlier: Parts) -> list[str]:
    """The names of parts that differ from an earlier run, and those that only one of them has."""
    names = dict.fromkeys((*parts, *earlier))
    return [name for name in names if parts.get(name) != earlier.get(name)]


def why_not(parts: Parts, job: str, earlier: Parts) -> str:
    """Why a step is not reused although it ran before as ``job``."""
    names = changed(parts, earlier)
    if not names:
        return f"the outputs of {job} were changed or deleted"
    listed = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"changed since {job}: {listed}"


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
