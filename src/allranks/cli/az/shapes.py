"""Our answers in the form of az's: the keys that scripts ask for with `--query`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allranks.sdk.assets.provisioning import provisioning_state
from allranks.sdk.jobs.properties import properties_of

if TYPE_CHECKING:
    from allranks.api.common import Document

Answer = Mapping[str, Any]


def job(data: Answer, address: str = "") -> Document:
    """A job as `az ml job show` has it. ``address``: of the server, for the job's page."""
    spec = data.get("spec") or {}
    page = f"{address}/ui/jobs/{data['name']}" if address else None
    answer = {
        **{key: value for key, value in spec.items() if key not in ("name", "experiment_name")},
        "name": data["name"],
        "id": f"azureml:{data['name']}",
        "type": data["type"],
        "status": data["status"],
        "display_name": data.get("display_name"),
        "experiment_name": data.get("experiment_name"),
        "compute": f"azureml:{data['compute']}" if data.get("compute") else None,
        "tags": data.get("tags") or {},
        "properties": properties_of(data),
        "creation_context": _made(data),
    }
    if page:
        answer["services"] = {
            **(spec.get("services") or {}),
            "Studio": {"endpoint": page, "type": "Studio"},
        }
    if data.get("error"):
        answer["error"] = {"message": data["error"]["message"], "code": "UserError"}
    return answer


def services(data: Answer, address: str, node: int) -> Document:
    """The services of a node, as `az ml job show-services` has them."""
    return {
        service["name"]: {
            "type": service["type"],
            "port": service["port"],
            "status": service["state"],
            "error": service["message"] or None,
            "endpoint": f"{address}{service['page']}" if service["page"] else None,
            "properties": {},
        }
        for service in data.get("services", ())
        if service["node"] == node
    }


def asset(data: Answer) -> Document:
    """A version of data, an environment, a model or a component, as `az ml … show` has it."""
    name = f"{data.get('name')}:{data['version']}" if data.get("version") else data.get("name")
    return {**data, "id": f"azureml:{name}", "creation_context": _made(data)}


def served(data: Answer) -> Document:
    """An endpoint or a deployment, as `az ml online-… show` has it."""
    spec = data.get("spec") or {}
    # A model that is not registered is in the file alone; traffic that has come is no wish.
    hidden = {"spec", "deployments", "takes_traffic"}
    hidden |= set() if data.get("model") else {"model"}
    answer = {
        **{key: value for key, value in spec.items() if key != "endpoint_name"},
        **{key: value for key, value in data.items() if key not in hidden},
        "provisioning_state": provisioning_state(data["state"]),
    }
    if "endpoint" in data:
        return {**answer, "endpoint_name": data["endpoint"], "instance_count": data["instances"]}
    uri = data.get("scoring_uri")
    return {**answer, "openapi_uri": uri and uri.removesuffix("/score") + "/swagger.json"}


def batch(data: Answer) -> Document:
    """A batch endpoint or deployment, as `az ml batch-… show` has it."""
    hidden = ("spec", "deployments", "component", "notes", "endpoint", "default_deployment")
    answer = {
        **{key: value for key, value in (data.get("spec") or {}).items() if key != "$schema"},
        **{key: value for key, value in data.items() if key not in hidden},
        "provisioning_state": "Succeeded",
    }
    if "default_deployment" in data:
        answer["defaults"] = {"deployment_name": data["default_deployment"]}
    return answer


def _made(data: Answer) -> Document:
    return {
        "created_at": data.get("created_at"),
        "created_by": data.get("created_by"),
        "created_by_type": "User",
    }
