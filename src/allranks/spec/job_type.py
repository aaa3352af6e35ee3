"""The type of a job, by its ``type`` or its ``$schema``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from allranks.spec.job_parts import snake

_SCHEMA = re.compile(r"(command|sweep|pipeline)Job", re.IGNORECASE)


def job_type(data: Mapping[str, Any]) -> str:
    """The type of a job's data; `command` by default."""
    if data.get("type") is not None:
        return str(snake(data["type"]))
    schema = _SCHEMA.search(str(data.get("$schema") or "").replace("_", ""))
    return schema[1].lower() if schema else "command"
