"""Our answers in the form of az's: the keys that scripts ask for with `--query`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allranks.sdk.jobs.properties import properties_of

if TYPE_CHECKING:
    from allranks.api.common import Document

Told = Mapping[str, Any]


def job(told: Told, address: str = "") -> Document:
    """A job as `az ml job show` has it. ``address``: of the server, for the job's page."""
    spec = told.get("spec") or {}
    page = f"{address}/ui/jobs/{told['name']}" if address else None
    found = {
        **{key: value for key, value in spec.items() if key not in ("name", "experiment_name")},
        "name": told["name"],
        "id": f"azureml:{told['name']}",
        "type": told["type"],
        "status": told["status"],
        "display_name": told.get("display_name"),
        "experiment_name": told.get("experiment_name"),
        "compute": f"azureml:{told['compute']}" if told.get("compute") else None,
        "tags": told.get("tags") or {},
        "properties": properties_of(told),
        "creation_context": _made(told),
    }
    if page:
        found["services"] = {
            **(spec.get("services") or {}),
            "Studio": {"endpoint": page, "type": "Studio"},
        }
    if told.get("error"):
        found["error"] = {"message": told["error"]["message"], "code": "UserError"}
    return found


def asset(told: Told) -> Document:
    """A version of data, an environment, a model or a component, as `az ml … show` has it."""
    name = f"{told.get('name')}:{told['version']}" if told.get("version") else told.get("name")
    return {**told, "id": f"azureml:{name}", "creation_context": _made(told)}


def _made(told: Told) -> Document:
    return {
        "created_at": told.get("created_at"),
        "created_by": told.get("created_by"),
        "created_by_type": "User",
    }
