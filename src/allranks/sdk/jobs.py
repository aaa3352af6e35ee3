"""Building jobs in Python: the same models as the YAML's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.spec import load as _load
from allranks.spec.job import CommandJob, parse


def command(
    *,
    command: str,
    instance_count: int | None = None,
    timeout: float | None = None,
    **keys: Any,
) -> CommandJob:
    """A command job; ``keys`` are those of the job YAML (code, inputs, distribution, …).

    ``instance_count`` and ``timeout`` are short for ``resources.instance_count`` and
    ``limits.timeout``. Models and plain dictionaries may be mixed. Raises SpecError.
    """
    data = {name: _plain(value) for name, value in keys.items() if value is not None}
    data["command"] = command
    if instance_count is not None:
        data["resources"] = {**data.get("resources", {}), "instance_count": instance_count}
    if timeout is not None:
        data["limits"] = {**data.get("limits", {}), "timeout": timeout}
    return parse(data)


def load_job(source: str | os.PathLike[str]) -> CommandJob:
    """The job of a YAML file, its relative paths made relative to nothing but the file's folder.

    Raises SpecError with key, line and hint.
    """
    path = Path(source)
    job = _load.load(path)
    data = job.to_dict()
    if isinstance(data.get("code"), str):
        data["code"] = os.path.abspath(path.parent / data["code"])
    for each in (data.get("inputs") or {}).values():
        if isinstance(each, dict) and _is_local(each.get("path")):
            each["path"] = os.path.abspath(path.parent / each["path"])
    return parse(data)


def _is_local(path: Any) -> bool:
    return isinstance(path, str) and ":" not in path.split("/")[0]


def _plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json", exclude_none=True)
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return str(value) if isinstance(value, os.PathLike) else value
