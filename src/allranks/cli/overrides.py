"""`--set a.b=c` on a job that was typed rather than read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def override(spec: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """The spec with each override in place, values read as YAML. Raises UsageError."""
    if not overrides:
        return spec
    from allranks.spec.load import override_key  # lazy: imports YAML, 60 ms, seldom asked for

    for each in overrides:
        override_key(spec, {}, each)
    return spec
