"""`--set a.b=c` on a job that was typed rather than read from a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def override(spec: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Set each override in the spec, values read as YAML. Raises UsageError and SpecError."""
    if not overrides:
        return spec
    from allranks.spec.yaml.load import override_keys  # lazy: imports YAML, 60 ms, seldom asked for

    override_keys(spec, {}, overrides, typed=True, engines=engines(overrides))
    return spec


def engines(overrides: Sequence[str]) -> Sequence[str]:
    """The names of the engines, where one of the overrides may mean one."""
    if not any(each.strip().startswith("resources") for each in overrides):
        return ()
    from allranks.engines.registry import KINDS  # lazy: as above

    return [*KINDS]
