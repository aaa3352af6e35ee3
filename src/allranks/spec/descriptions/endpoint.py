"""The keys of endpoints and deployments."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.spec.descriptions.job import DESCRIPTION, PROPERTIES, TAGS, VERSION

_IDLE = "No effect here."

ENDPOINT: Mapping[str, Mapping[str, str]] = {
    "Endpoint": {
        "schema_": "The file's schema, for editors. No effect.",
        "name": "The endpoint's name, a part of its address.",
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "auth_mode": "`none` asks for no key; all others ask for one of the endpoint's two keys.",
        "traffic": "The percents of requests by deployment: their sum is 100, or 0.",
        "access_log": "Ours: whether each request is a line of `serve/access.log` in the home.",
        "mirror_traffic": "The percent of requests of which a copy goes to a deployment, too.",
        "compute": "The compute of replicas whose deployment names none.",
        "identity": _IDLE,
        "public_network_access": _IDLE,
        "location": _IDLE,
        "kind": _IDLE,
        "type": _IDLE,
    },
    "EndpointRecord": {
        "scoring_uri": "The address of its deployments; none before the first one.",
        "openapi_uri": "The address of its description.",
        "provisioning_state": "Azure ML's word for its state.",
    },
    "Deployment": {
        "schema_": "The file's schema, for editors. No effect.",
        "name": "The deployment's name.",
        "endpoint_name": "The endpoint whose requests it answers.",
        "type": _IDLE,
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "model": "A registered model, as `azureml:NAME:VERSION`, or the files of one.",
        "code_configuration": "The code with the scoring script.",
        "command": "A program that listens on the port of its variable `PORT`, instead of a "
        "scoring script.",
        "code": "The folder with the code of `command`.",
        "environment": "The environment of the replicas.",
        "environment_variables": "Variables of the replicas.",
        "warm": "Ours: modules that replicas find imported, as `warm` of a job.",
        "compute": "The compute of the replicas; that of the endpoint if left out.",
        "resources": "The GPUs of each replica.",
        "instance_type": "The machine size. Its GPUs are those of `allranks instance map`.",
        "instance_count": "The number of replicas. With `scale_settings`: the first number.",
        "request_settings": "How requests wait and how long they take.",
        "liveness_probe": "When a replica that was ready is replaced.",
        "readiness_probe": "When a new replica is ready.",
        "scale_settings": "How the number of replicas follows the load.",
        "app_insights_enabled": _IDLE,
        "egress_public_network_access": _IDLE,
        "data_collector": _IDLE,
        "model_mount_path": "The folder of models in an image that starts a server of its own: "
        "`/var/azureml-app/azureml-models`, with a folder for the name and one for the version.",
    },
    "DeploymentResources": {
        "gpus_per_instance": "Ours: the GPUs of each replica. `0`: none. Left out: as for a job "
        "of one process, which gets a GPU where there are any.",
        "requests": "Of Kubernetes: `nvidia.com/gpu` counts, if `limits` has none.",
        "limits": "Of Kubernetes: `nvidia.com/gpu` counts, the rest has no effect.",
    },
    "InlineModel": {
        "name": "The model's name.",
        "version": VERSION,
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "type": "The type of the model. Found from its files if left out.",
        "flavors": "MLflow's flavors of the model.",
        "path": "The model's file or folder, relative to the deployment's file.",
    },
    "CodeConfiguration": {
        "code": "The folder with the code.",
        "scoring_script": "The script in that folder, with `init()` and `run(data)`.",
    },
    "RequestSettings": {
        "request_timeout_ms": "Milliseconds until an answer must have begun.",
        "max_concurrent_requests_per_instance": "Requests that a replica has at once.",
        "max_queue_wait_ms": "Milliseconds that a request waits for a free replica.",
    },
    "Probe": {
        "initial_delay": "Seconds before the first probe counts.",
        "period": "Seconds between two probes.",
        "timeout": "Seconds that a probe may take.",
        "success_threshold": "Kept and shown: one success is enough.",
        "failure_threshold": "Failed probes in a row that count as a failure.",
        "path": "The path that is asked; `/` if left out.",
    },
    "ScaleSettings": {
        "type": "`target_utilization` scales by load; `default` does not.",
        "min_instances": "The least number of replicas; with 0 the first request starts one.",
        "max_instances": "The largest number of replicas; `instance_count` if left out.",
        "polling_interval": "Seconds between two decisions.",
        "target_utilization_percentage": "The percentage of "
        "`max_concurrent_requests_per_instance` that requests should use on average.",
        "scale_down_delay": "Ours: seconds for which fewer replicas must suffice before one is "
        "removed.",
    },
}
