"""What programs for `azure.ai.ml` and `az ml` read from a job's ``properties``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.api.common import Document


def properties_of(told: Mapping[str, Any]) -> Document:
    """The ``properties`` of its job file; of a sweep also its best trial, once it has one."""
    spec = told.get("spec") or {}
    best = told.get("best")
    found = dict(spec.get("properties") or {})
    return {**found, "best_child_run_id": best["job"]} if best else found
