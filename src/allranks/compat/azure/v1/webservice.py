"""`azureml.core.webservice`: services are endpoints with one deployment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from allranks.api import routes
from allranks.compat.azure.notes import without_effect
from allranks.compat.azure.v1.environment import Environment
from allranks.compat.azure.v1.exceptions import WebserviceException, no_more, not_there
from allranks.errors import AllranksError, Conflict, NotFound
from allranks.sdk.assets.endpoints import OnlineDeployments, OnlineEndpoints, invoke, wait
from allranks.sdk.connection import find_server
from allranks.sdk.submit.deployment import on_compute_of_endpoint, prepare_deployment
from allranks.sdk.submit.send import send

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.endpoints import DeploymentAnswer, EndpointAnswer

_DEPLOYMENT = "default"
# Seconds that a deployment may take, and milliseconds of Azure's first SDK for an answer.
_PATIENCE, _TIMEOUT = 1800.0, 60_000
_OWN = (
    *("tags", "properties", "description", "auth_enabled", "token_auth_enabled"),
    *("num_replicas", "replica_max_concurrent_requests", "scoring_timeout_ms"),
    *("max_request_wait_time", "autoscale_enabled", "autoscale_min_replicas"),
    *("autoscale_max_replicas", "autoscale_target_utilization", "autoscale_refresh_seconds"),
)
# What Azure bills.
_IDLE = (
    *("cpu_cores", "memory_gb", "gpu_cores", "location", "ssl_enabled", "ssl_cname", "port"),
    *("enable_app_insights", "collect_model_data", "dns_name_label"),
    *("cpu_cores_limit", "memory_gb_limit", "period_seconds"),
    *("initial_delay_seconds", "timeout_seconds", "success_threshold", "failure_threshold"),
    *("compute_target_name", "blobfuse_enabled", "namespace"),
)


KEYWORDS = (*_OWN, *_IDLE)


class Registered(Protocol):
    """A version of a model: `NAME:VERSION`."""

    id: str


class Inference(Protocol):
    """The script of a service, its folder and its environment."""

    entry_script: str
    source_directory: str | None
    environment: Environment | None


class DeploymentConfiguration:
    """What ``deploy_configuration`` returns."""

    def __init__(self, of: type[Webservice], arguments: Mapping[str, Any]) -> None:
        name = f"{of.__name__}.deploy_configuration"
        more = {key: value for key, value in arguments.items() if key not in _OWN}
        no_more(name, more, _IDLE)
        self.of = of
        self.given = {key: arguments[key] for key in _OWN if arguments.get(key) is not None}

    def endpoint(self, name: str) -> Document:
        """The keys of its endpoint."""
        has_key = self.given.get("auth_enabled", self.of.has_key)
        keys = ("tags", "properties", "description")
        own = {key: self.given[key] for key in keys if key in self.given}
        if self.given.get("token_auth_enabled"):
            has_key = True
        return {"name": name, "auth_mode": "key" if has_key else "none", **own}

    def deployment(self) -> Document:
        """The keys of its deployment that it says."""
        settings = {
            "request_timeout_ms": self.given.get("scoring_timeout_ms", _TIMEOUT),
            "max_concurrent_requests_per_instance": self.given.get(
                "replica_max_concurrent_requests", 1
            ),
        }
        if "max_request_wait_time" in self.given:
            settings["max_queue_wait_ms"] = self.given["max_request_wait_time"]
        count = self.given.get("num_replicas", 1)
        return {"request_settings": settings, "instance_count": count, **self.scale()}

    def scale(self) -> Document:
        """How it scales by load, with Azure's defaults."""
        if not self.given.get("autoscale_enabled"):
            return {}
        keys = {
            "min_instances": ("autoscale_min_replicas", 1),
            "max_instances": ("autoscale_max_replicas", 10),
            "target_utilization_percentage": ("autoscale_target_utilization", 70),
            "polling_interval": ("autoscale_refresh_seconds", 1),
        }
        return {
            "scale_settings": {key: self.given.get(*argument) for key, argument in keys.items()}
        }


class Webservice:
    """A service by its name. Raises WebserviceException if there is none."""

    has_key: ClassVar[bool] = True

    def __init__(self, workspace: object, name: str) -> None:
        self.workspace, self.name = workspace, name
        try:
            self._endpoint()
        except NotFound as error:
            raise WebserviceException(error.message, hint=error.hint) from None

    @classmethod
    def list(cls, workspace: object, compute_type: str | None = None, **_: Any) -> list[Webservice]:
        rows = find_server.ask(routes.list_endpoints)
        names = [
            row["name"]
            for row in rows
            if any(item["name"] == _DEPLOYMENT for item in row["deployments"])
        ]
        return [Webservice(workspace, name) for name in names]

    @classmethod
    def deploy_configuration(cls, **arguments: Any) -> DeploymentConfiguration:
        return DeploymentConfiguration(cls, arguments)

    @property
    def state(self) -> str:
        """Azure's word: Healthy, Transitioning, Unhealthy or Failed."""
        words = {
            "Ready": "Healthy",
            "Degraded": "Unhealthy",
            "UpdateFailed": "Failed",
            "Failed": "Failed",
        }
        return words.get(self._deployment()["state"], "Transitioning")

    @property
    def error(self) -> Document | None:
        reason = self._deployment()["reason"]
        return None if reason is None else {"message": reason}

    @property
    def scoring_uri(self) -> str | None:
        return self._endpoint()["scoring_uri"]

    @property
    def swagger_uri(self) -> str | None:
        return (self.scoring_uri or "").removesuffix("/score") + "/swagger.json"

    @property
    def auth_enabled(self) -> bool:
        return self._endpoint()["auth_mode"] != "none"

    @property
    def tags(self) -> dict[str, str]:
        return self._endpoint()["tags"]

    @property
    def description(self) -> str | None:
        return self._endpoint()["description"]

    def wait_for_deployment(self, show_output: bool = False, timeout_sec: float = 0) -> None:
        """Wait until it answers. Raises WebserviceException when it has failed."""
        if show_output:
            print("Running", flush=True)
        try:
            wait(self.name, _DEPLOYMENT, lambda answer: None, timeout_sec or _PATIENCE)
        except AllranksError as error:
            raise WebserviceException(error.message, hint=error.hint) from None
        if show_output:
            print(f'Succeeded\n{type(self).__name__} "{self.name}" is Healthy', flush=True)

    def run(self, input_data: str | bytes, **_: Any) -> Any:
        """The answer to a request, read as JSON where it is. Raises WebserviceException."""
        body = input_data.encode() if isinstance(input_data, str) else input_data
        try:
            text = invoke(self.name, body)
        except AllranksError as error:
            raise WebserviceException(error.message, hint=error.hint) from None
        try:
            return json.loads(text)
        except ValueError:
            return text

    def get_logs(self, num_lines: int = 5000, **_: Any) -> str:
        return OnlineDeployments().get_logs(_DEPLOYMENT, self.name, num_lines)

    def get_keys(self) -> tuple[str, str]:
        keys = OnlineEndpoints().get_keys(self.name)
        return keys.primary_key, keys.secondary_key

    def regen_key(self, key: str, **_: Any) -> None:
        OnlineEndpoints().begin_regenerate_keys(self.name, key_type=key)

    def update(
        self,
        models: Sequence[Registered] | None = None,
        inference_config: Inference | None = None,
        environment: Environment | None = None,
        **more: Any,
    ) -> None:
        """Update it: new replicas answer before the old ones stop; see ``wait_for_deployment``."""
        configuration = DeploymentConfiguration(type(self), more)
        keys = configuration.endpoint(self.name)
        del keys["name"]
        if configuration.given.keys().isdisjoint(("auth_enabled", "token_auth_enabled")):
            del keys["auth_mode"]
        if keys:
            find_server.ask(routes.update_endpoint, self.name, body=keys)
        own = {
            **(_of_models(models) if models is not None else {}),
            **(_of_script(inference_config) if inference_config is not None else {}),
            **({"environment": environment.as_spec()} if environment is not None else {}),
            **configuration.scale(),
        }
        if own:
            before = self._deployment()["spec"]
            _send(routes.update_deployment.at(self.name, _DEPLOYMENT), {**before, **own})
        elif "num_replicas" in configuration.given:
            changed = {"instance_count": configuration.given["num_replicas"]}
            find_server.ask(routes.update_deployment, self.name, _DEPLOYMENT, body=changed)

    def delete(self) -> None:
        find_server.ask(routes.delete_endpoint, self.name)

    def serialize(self) -> Document:
        return {"name": self.name, "state": self.state, "scoringUri": self.scoring_uri}

    def _endpoint(self) -> EndpointAnswer:
        return find_server.ask(routes.show_endpoint, self.name)

    def _deployment(self) -> DeploymentAnswer:
        return find_server.ask(routes.show_deployment, self.name, _DEPLOYMENT)

    def __repr__(self) -> str:
        return f"{type(self).__name__}(workspace={self.workspace}, name={self.name})"


class LocalWebservice(Webservice):
    """A service of this machine, without a key."""

    has_key = False

    def reload(self, **_: Any) -> None:
        """Start its replicas anew, with the code as it is now."""
        to = routes.update_deployment.at(self.name, _DEPLOYMENT)
        _send(to, self._deployment()["spec"])


class AciWebservice(Webservice):
    """As LocalWebservice: container instances have no key unless `auth_enabled` is set."""

    has_key = False


class AksWebservice(Webservice):
    """A service with keys."""


KINDS = (LocalWebservice, AciWebservice, AksWebservice)


def deploy(
    workspace: object,
    name: str,
    models: Sequence[Registered],
    inference: Inference | None,
    configuration: DeploymentConfiguration | None,
    overwrite: bool,
) -> Webservice:
    """A service whose deployment has begun. Raises WebserviceException."""
    chosen = configuration or AciWebservice.deploy_configuration()
    keys = {
        "name": _DEPLOYMENT,
        "endpoint_name": name,
        **chosen.deployment(),
        **_of_models(models),
        **(_of_script(inference) if inference is not None else {}),
    }
    endpoint = chosen.endpoint(name)
    is_new = True
    try:
        find_server.ask(routes.create_endpoint, body=endpoint)
    except Conflict as error:
        is_new = False
        if not overwrite:
            hint = "overwrite=True, or service.update(…)"
            raise WebserviceException(error.message, hint=hint) from None
        find_server.ask(routes.update_endpoint, name, body=endpoint)
    try:
        try:
            _send(routes.create_deployment.at(name), keys)
        except Conflict:
            _send(routes.update_deployment.at(name, _DEPLOYMENT), keys)
    except AllranksError as error:
        if is_new:
            find_server.ask(routes.delete_endpoint, name)
        raise WebserviceException(error.message, hint=error.hint) from None
    return chosen.of(workspace, name)


def _send(to: tuple[str, str], keys: Document) -> None:
    with find_server.connect() as client:
        keys = on_compute_of_endpoint(keys, client)
    body, snapshots = prepare_deployment(keys, Path.cwd())
    with find_server.connect() as client:
        send(client, {**body, "all_traffic": True}, snapshots, to=to)


def _of_models(models: Sequence[Registered]) -> Document:
    if len(models) > 1:
        not_there("a service with several models", "register one folder that has them all")
    return {"model": f"azureml:{models[0].id}"} if models else {}


def _of_script(inference: Inference) -> Document:
    # Absolute: an update may come from another folder.
    folder = str(Path(inference.source_directory or ".").absolute())
    script = {"code": folder, "scoring_script": inference.entry_script}
    keys: Document = {"code_configuration": script}
    if inference.environment is not None:
        keys["environment"] = inference.environment.as_spec()
        if variables := inference.environment.environment_variables:
            keys["environment_variables"] = {key: str(value) for key, value in variables.items()}
    return keys


def note_target(target: object) -> None:
    """Say that the cluster of a service makes no difference."""
    without_effect("Model.deploy", {"deployment_target": target}, "it runs on the server's machine")
