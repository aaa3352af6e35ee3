"""What programs for `azure.ai.ml` and `az ml` read from a job's ``properties``. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.api.common import Document


def properties_of(job: Mapping[str, Any]) -> Document:
    """The ``properties`` of its job file; of a sweep also its best trial, once it has one."""
    spec = job.get("spec") or {}
    best = job.get("best")
    properties = dict(spec.get("properties") or {})
    return {**properties, "best_child_run_id": best["job"]} if best else properties
