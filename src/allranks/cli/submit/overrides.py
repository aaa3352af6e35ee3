"""`--set a.b=c` on a job that comes from options instead of a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def override(spec: dict[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """Set each override in the spec, with its value read as YAML. Raises UsageError, SpecError."""
    if overrides:
        from allranks.spec.yaml.load import override_keys  # lazy: YAML takes 60 ms

        override_keys(spec, {}, overrides, typed=True, engines=engines(overrides))
    return spec


def engines(overrides: Sequence[str]) -> Sequence[str]:
    """The names of the engines, if an override may contain one."""
    if not any(each.strip().startswith("resources") for each in overrides):
        return ()
    from allranks.engines.registry import KINDS  # lazy: few overrides need it

    return [*KINDS]
