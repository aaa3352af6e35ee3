"""The keys of batch endpoints and their deployments."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.spec.descriptions.job import DESCRIPTION, PROPERTIES, TAGS

_IDLE = "No effect here."

BATCH: Mapping[str, Mapping[str, str]] = {
    "BatchEndpoint": {
        "schema_": "The file's schema: it tells a batch endpoint from an online one.",
        "name": "The endpoint's name.",
        "type": "`batch` (ours), where the file has no schema.",
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "auth_mode": _IDLE,
        "defaults": "What an invocation gets that names no deployment.",
        "identity": _IDLE,
        "location": _IDLE,
    },
    "BatchDefaults": {"deployment_name": "The default deployment."},
    "BatchRetrySettings": {
        "timeout": "Seconds that `run` may take for a mini-batch.",
        "max_retries": "How often a mini-batch that failed is tried again.",
    },
    "ModelBatchDeploymentSettings": {
        "mini_batch_size": "The number of files that `run` gets at once.",
        "instance_count": "The number of nodes, as `resources.instance_count`.",
        "max_concurrency_per_instance": "The processes on each node.",
        "output_action": "`append_row` writes what `run` returns to a file; `summary_only` none.",
        "output_file_name": "That file, in the output `score`.",
        "retry_settings": "How long a mini-batch may take, and how often it is tried again.",
        "environment_variables": "Variables of the processes.",
        "error_threshold": "How many files may fail: those of failed mini-batches, and those "
        "without a row of their own. -1: all.",
        "logging_level": _IDLE,
    },
    "BatchKeys": {
        "schema_": "The file's schema: it tells a batch deployment from an online one.",
        "name": "The deployment's name.",
        "endpoint_name": "Its endpoint.",
        "type": "`model` or `pipeline`; found from the other keys if left out.",
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
    },
    "ModelKeys": {
        "model": "A registered model, as `azureml:NAME:VERSION`, or the files of one.",
        "code_configuration": "The code with the scoring script. A model of MLflow's needs none.",
        "code_path": "`code_configuration.code`, of Python programs.",
        "scoring_script": "`code_configuration.scoring_script`, of Python programs.",
        "environment": "The environment of the processes. Left out: the current Python of "
        "whoever invokes it.",
        "compute": "The compute of the jobs.",
        "resources": "The nodes of a job.",
    },
    "ModelBatchDeployment": {"settings": "The settings, which files may also have at the top."},
    "PipelineComponentBatchDeployment": {
        "component": "A pipeline component: `azureml:NAME:VERSION`, a file, or its keys.",
        "job_definition": "A pipeline job instead, as `azureml:JOB`: its literals are defaults.",
        "settings": "The settings of the jobs, as a pipeline has them: `default_compute`, …",
    },
}
