"""Online endpoints and their deployments, with Azure ML v2's keys."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from allranks.errors import Problem
from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import Models, validated, without_none
from allranks.spec.fields.scalars import (
    EmptyableText,
    Free,
    Integer,
    Module,
    PathText,
    Several,
    Text,
    Texts,
    Variable,
    matching,
)
from allranks.spec.job_keys import AnyEnvironment
from allranks.spec.job_parts import Environment, ModelType, snake
from allranks.spec.model import Model

_Snake = BeforeValidator(snake)
_ENDPOINT = matching(
    r"[A-Za-z0-9][A-Za-z0-9-]{0,62}",
    "must have 1 to 63 letters, digits or `-`, and start with a letter or digit",
    "it is a part of the scoring address",
)
EndpointName = Annotated[Text, AfterValidator(_ENDPOINT)]
_DEPLOYMENT = matching(
    r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}",
    "must have 1 to 63 letters, digits, `-` or `_`, and start with a letter or digit",
    "it is a part of the names of its replicas",
)
DeploymentName = Annotated[Text, AfterValidator(_DEPLOYMENT)]
Percent = Annotated[Integer, Field(ge=0, le=100)]
Traffic = dict[DeploymentName, Percent]
# Beyond the limit, which nobody means, a number does not fit into what computes with it.
Amount = Annotated[Integer, Field(ge=1, le=10**12)]

# Accepted without effect: why.
NOTED: Mapping[str, str] = {
    "identity": "replicas run as the user of the compute",
    "public_network_access": "the address is that of this server",
    "egress_public_network_access": "replicas have the network of their node",
    "location": "it is here",
    "kind": "all are alike here",
    "app_insights_enabled": "requests are counted here: allranks endpoint show",
    "data_collector": "requests are counted here, not kept",
    "type": "all run here",
    "resources": "the options of the compute decide, but for GPUs",
    "model_mount_path": "AZUREML_MODEL_DIR says where the model is",
}
_MOUNTED = "model_mount_path"


def model_of(value: object) -> object:
    """A model of a program: its reference if it is registered, else its files."""
    if not isinstance(value, Model):
        return value
    keys = ("name", "type", "path")
    return value.id or {key: v for key in keys if (v := getattr(value, key)) is not None}


class Endpoint(Part):
    """An address that answers, and how its requests are divided among its deployments.
    ``traffic`` is in percent by deployment; ``mirror_traffic`` is copied there, too."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: EndpointName
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    auth_mode: Annotated[Literal["key", "aml_token", "aad_token", "none"], _Snake] = "key"
    traffic: Traffic = Field(default_factory=dict)
    mirror_traffic: Traffic = Field(default_factory=dict)
    access_log: bool = True
    compute: Text | None = None
    identity: Free | None = None
    public_network_access: Text | None = None
    location: Text | None = None
    kind: Text | None = None
    type: Text | None = None


class InlineModel(Part):
    """A model by its files: it is not registered."""

    name: Text | None = None
    version: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    type: ModelType | None = None
    flavors: Free | None = None
    path: PathText = Field(min_length=1)


class CodeConfiguration(Part):
    code: PathText = "."
    scoring_script: Text = Field(min_length=1)


class RequestSettings(Part):
    """A request waits for ``max_queue_wait_ms`` at most for one of the turns of a replica."""

    request_timeout_ms: Amount = 5000
    max_concurrent_requests_per_instance: Amount = 1
    max_queue_wait_ms: Amount = 500


class Probe(Part):
    """Times in seconds. A replica has ``initial_delay`` + ``period`` × ``failure_threshold`` to
    become ready; one that was ready and fails ``failure_threshold`` times is replaced."""

    initial_delay: Amount = 10
    period: Amount = 10
    timeout: Amount = 2
    success_threshold: Amount = 1
    failure_threshold: Amount = 30
    path: Text | None = None


class ScaleSettings(Part):
    """The number of replicas follows the load, so that requests use that percentage of
    ``max_concurrent_requests_per_instance`` on average. Replicas are added at once, and removed
    when fewer sufficed for ``scale_down_delay`` seconds (ours). `default` does not scale."""

    type: Annotated[Literal["default", "target_utilization"], _Snake] = "target_utilization"
    min_instances: Annotated[Integer, Field(ge=0)] = 1
    max_instances: Amount | None = None
    polling_interval: Amount = 1
    target_utilization_percentage: Annotated[Integer, Field(ge=1, le=100)] = 70
    scale_down_delay: Amount = 60


class DefaultScaleSettings(ScaleSettings):
    def __init__(self) -> None:
        super().__init__(type="default")


class DeploymentResources(Part):
    """GPUs of each replica: ``gpus_per_instance`` (ours), or `nvidia.com/gpu` in ``limits`` or
    ``requests``, as in Kubernetes. The rest of these has no effect."""

    gpus_per_instance: Annotated[Integer, Field(ge=0)] | None = None
    requests: Free | None = None
    limits: Free | None = None


class Deployment(Part):
    """Replicas that answer the requests of an endpoint: a model with or without a scoring script,
    or any ``command`` that listens on the port of its variable ``PORT`` (ours). ``warm``, ours too,
    are modules that replicas find imported."""

    schema_: Text | None = Field(default=None, alias="$schema")
    name: DeploymentName
    endpoint_name: EndpointName
    type: Text | None = None
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    model: Annotated[InlineModel | Text | None, BeforeValidator(model_of)] = None
    code_configuration: CodeConfiguration | None = None
    command: Text | None = None
    code: PathText | None = None
    environment: AnyEnvironment | None = None
    environment_variables: dict[Variable, EmptyableText] = Field(default_factory=dict)
    warm: Several[Module] = ()
    compute: Text | None = None
    resources: DeploymentResources | None = None
    instance_type: Text | None = None
    instance_count: Amount = 1
    request_settings: RequestSettings = Field(default_factory=RequestSettings)
    liveness_probe: Probe = Field(default_factory=Probe)
    readiness_probe: Probe = Field(default_factory=Probe)
    scale_settings: ScaleSettings | None = None
    app_insights_enabled: bool | None = None
    egress_public_network_access: Text | None = None
    data_collector: Free | None = None
    model_mount_path: Text | None = None


_MODELS: Models = {
    "": (Deployment,),
    "code_configuration": (CodeConfiguration,),
    "request_settings": (RequestSettings,),
    "liveness_probe": (Probe,),
    "readiness_probe": (Probe,),
    "scale_settings": (ScaleSettings,),
    "model": (InlineModel,),
    "resources": (DeploymentResources,),
}


def parse_endpoint(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Endpoint:
    """Raises one SpecError with all problems."""
    models: Models = {"": (Endpoint,)}
    return validated(Endpoint, without_none(data), models, lines, file, _problems_of_traffic)


def parse_deployment(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> Deployment:
    """Raises one SpecError with all problems."""
    return validated(Deployment, without_none(data), _MODELS, lines, file, _problems_of)


def _problems_of_traffic(made: Endpoint) -> Iterator[Problem]:
    if problem := traffic_problem(made.traffic):
        yield problem
    if sum(made.mirror_traffic.values()) > 50:
        hint = "mirror_traffic is for one deployment, and at most 50 percent"
        yield Problem("more than 50 percent are mirrored", "mirror_traffic", hint=hint)


def traffic_problem(traffic: Mapping[str, int]) -> Problem | None:
    """Why requests cannot be divided so: the sum is to be 0 or 100."""
    total = sum(traffic.values())
    if total in (0, 100):
        return None
    hint = "the percents of all deployments add up to 100, or to 0 for no traffic"
    return Problem(f"the traffic adds up to {total}, not to 100", "traffic", hint=hint)


_GPU = "nvidia.com/gpu"


def gpus_of(resources: DeploymentResources | None) -> int | None:
    """The GPUs of each replica; None where the deployment does not say. Raises ValueError."""
    if resources is None:
        return None
    if resources.gpus_per_instance is not None:
        return resources.gpus_per_instance
    for part in (resources.limits or {}, resources.requests or {}):
        if part.get(_GPU) is not None:
            return int(str(part[_GPU]))
    return None


def _problems_of(made: Deployment) -> list[Problem]:
    try:
        gpus = gpus_of(made.resources)
    except ValueError:
        gpus = -1
    if gpus is not None and gpus < 0:
        return [Problem(f"{_GPU} must be a number of GPUs", "resources", hint=f"{_GPU}: 1")]
    if starts_image(made) and image_port(made) is None:
        hint = "scoring_route: {port: 8501, path: /v1/models/NAME:predict}"
        key = "environment.inference_config"
        return [Problem("the image's port is missing", key, hint=hint)]
    if made.command is not None and made.code_configuration is not None:
        hint = "a scoring script is run by `code_configuration` alone"
        return [Problem("a deployment has a command or a scoring script", "command", hint=hint)]
    if not (made.command or made.code_configuration or made.model or starts_image(made)):
        hint = "model: azureml:NAME:VERSION, with code_configuration unless it needs no script"
        return [Problem("a deployment needs a model, a scoring script or a command", hint=hint)]
    if isinstance(made.model, InlineModel) and made.model.type == "triton_model":
        hint = "serve it with `command: tritonserver …` in an environment that has Triton"
        return [Problem("Triton is not started here", "model.type", hint=hint)]
    scale = made.scale_settings
    if scale and scale.min_instances > (scale.max_instances or made.instance_count):
        hint = "max_instances is instance_count if left out"
        message = "min_instances is larger than max_instances"
        return [Problem(message, "scale_settings", hint=hint)]
    return []


def notes(data: Mapping[str, Any]) -> list[str]:
    """A sentence for each key without effect."""
    return [
        f"no effect here: {key} ({why})"
        for key, why in NOTED.items()
        if data.get(key) is not None
        and not (key == _MOUNTED and route_of(data, "scoring_route"))
        and not (key == "resources" and data[key].keys() == {"gpus_per_instance"})
    ]


# What a model's file, folder or version is called in the job of a replica.
_MODEL = "model"
_REFERENCE = re.compile(r"azureml:(?P<name>[^:@/]+)(?:[:@](?P<version>.+))?")
# Where images expect models: below it are their names and versions.
_MOUNT = "/var/azureml-app/azureml-models"


def route_of(deployment: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """One of `scoring_route`, `readiness_route` and `liveness_route` of a deployment's image."""
    environment = deployment.get("environment")
    if not isinstance(environment, Mapping):
        return {}
    config = environment.get("inference_config")
    route = config.get(name) if isinstance(config, Mapping) else None
    return route if isinstance(route, Mapping) else {}


def path_of(deployment: Mapping[str, Any], name: str) -> str | None:
    """The path of a route, with its slash."""
    path = route_of(deployment, name).get("path")
    return None if path is None else "/" + str(path).lstrip("/")


def starts_image(deployment: Deployment) -> bool:
    """Whether replicas run the program that an image starts by itself."""
    environment = deployment.environment
    return (
        isinstance(environment, Environment)
        and environment.inference_config is not None
        and not (deployment.command or deployment.code_configuration)
    )


def loads_model(deployment: Deployment) -> bool:
    """Whether replicas load the model by themselves, without a script or another program."""
    own = deployment.command or deployment.code_configuration
    return deployment.model is not None and not (own or starts_image(deployment))


def image_port(deployment: Deployment) -> int | None:
    """Where the program of the image listens."""
    port = str(route_of(deployment.model_dump(mode="json"), "scoring_route").get("port", ""))
    return int(port) if port.isdigit() and 0 < int(port) < 65536 else None


def model_reference(model: InlineModel | str | None) -> str | None:
    """A registered model, as ``azureml:NAME:VERSION``; None for another one."""
    if not isinstance(model, str):
        return None
    return model if model.startswith("azureml:") else f"azureml:{model}"


def replica_job(deployment: Deployment) -> dict[str, Any]:
    """The command job of one replica, without a name."""
    job: dict[str, Any] = {
        "type": "command",
        "display_name": f"{deployment.endpoint_name}/{deployment.name}",
        "experiment_name": deployment.endpoint_name,
        "environment_variables": dict(deployment.environment_variables),
        "command": deployment.command or _program(deployment),
        "hang_timeout": _NEVER,
    }
    if (model := model_reference(deployment.model)) is not None:
        job["inputs"] = {_MODEL: {"type": "custom_model", "path": model}}
    elif isinstance(deployment.model, InlineModel):
        job["inputs"] = {_MODEL: {"type": "custom_model", "path": deployment.model.path}}
    configuration = deployment.code_configuration
    code = configuration.code if configuration is not None else deployment.code
    data = deployment.model_dump(mode="json", exclude_none=True, by_alias=True)
    job |= {key: data[key] for key in ("environment", "compute", "warm") if key in data}
    if code is not None:
        job["code"] = code
    gpus = gpus_of(deployment.resources)
    size = {"instance_type": deployment.instance_type, "gpus_per_instance": gpus}
    if any(value is not None for value in size.values()):
        job["resources"] = without_none(size)
    return job


# Seconds: a replica without requests is idle, not stuck.
_NEVER = 1e9


def _program(deployment: Deployment) -> str:
    if not starts_image(deployment):
        return _scoring(deployment)
    start = 'eval "${ALLRANKS_IMAGE_PROGRAM:?this compute does not say what the image starts}"'
    if deployment.model is None:
        return start
    inline = (
        deployment.model if isinstance(deployment.model, InlineModel) else InlineModel(path="-")
    )
    reference = _REFERENCE.fullmatch(model_reference(deployment.model) or "")
    name = reference["name"] if reference else inline.name or _MODEL
    version = (reference and reference["version"]) or inline.version or "1"
    folder = shlex.quote(f"{deployment.model_mount_path or _MOUNT}/{name}/{version}")
    return (
        f"export AZUREML_MODEL_DIR={folder} && mkdir -p {folder} && "
        f'ln -sfn ${{{{inputs.{_MODEL}}}}} {folder}/"$ALLRANKS_MODEL_NAME" && {start}'
    )


def _scoring(deployment: Deployment) -> str:
    words = ["python -m allranks_scoring"]
    if deployment.code_configuration is not None:
        script = deployment.code_configuration.scoring_script
        words.append("--script '" + script.replace("'", "'\"'\"'") + "'")
    if deployment.model is not None:
        words.append(f'--model ${{{{inputs.{_MODEL}}}}} --model-name "$ALLRANKS_MODEL_NAME"')
    settings = deployment.request_settings
    words.append(f"--threads {settings.max_concurrent_requests_per_instance}")
    words.append(f"--timeout {settings.request_timeout_ms / 1000:g}")
    return " ".join(words)
