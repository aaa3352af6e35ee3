"""The keys of pipelines and components."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.spec.descriptions.job import DESCRIPTION, JOB, NO_EFFECT, PROPERTIES, TAGS, VERSION

PIPELINE: Mapping[str, Mapping[str, str]] = {
    "PipelineJob": {
        "type": "The type of the job.",
        "settings": "How the steps run.",
        "limits": "How long the pipeline runs.",
        "compute": "Where steps run that name no compute.",
        "inputs": "Values and data that steps refer to as `${{parent.inputs.NAME}}`.",
        "outputs": "What steps write as `${{parent.outputs.NAME}}`.",
        "jobs": "The steps by name: command, sweep and pipeline jobs, or components.",
        "component": "A pipeline component instead of `jobs`: its file, or a registered one.",
        "reuse_nodes": "Whether steps run on the nodes of those that have ended and asked for the "
        "same, without a new place in the cluster's queue.",
    },
    "Settings": {
        "default_compute": "Where steps run that name no compute.",
        "default_datastore": "Azure ML's default datastore. Kept and shown.",
        "continue_on_step_failure": "Whether steps that do not depend on a failed one still run.",
        "force_rerun": "Run all steps, also those with an earlier result.",
    },
    "PipelineLimits": {
        "timeout": "Seconds after which the pipeline ends and its steps are canceled.",
    },
    "Component": {
        "schema_": JOB["JobKeys"]["schema_"],
        "name": "The component's name.",
        "version": VERSION,
        "display_name": JOB["JobKeys"]["display_name"],
        "description": DESCRIPTION,
        "tags": TAGS,
        "properties": PROPERTIES,
        "inputs": "What a step gets, by name.",
        "outputs": "What a step writes, by name.",
        "is_deterministic": "Whether equal inputs give equal results, so that a step may take an "
        "earlier one.",
    },
    "CommandComponent": {
        "limits": JOB["CommandJob"]["limits"],
        "type": "The type of the component.",
        "additional_includes": "Files and folders that are put beside the code, relative to the "
        "component's file.",
        "snapshot": "The digest of the code. Set when the component is registered.",
    },
    "ParallelComponent": {"type": "The type of the component."},
    "ParallelKeys": {
        "task": "What runs on each mini-batch.",
        "input_data": "The input whose files are divided into mini-batches: `${{inputs.NAME}}`.",
        "mini_batch_size": "The number of files in a mini-batch, or their size, as in `10kb`.",
        "mini_batch_error_threshold": "How many mini-batches may fail. -1: all.",
        "max_concurrency_per_instance": "The number of processes on each node.",
        "retry_settings": "How long a mini-batch may take, and how often it is tried again.",
        "logging_level": "Azure ML's level of messages. Kept and shown.",
        "partition_keys": f"Azure ML's key. {NO_EFFECT}",
        "error_threshold": f"Azure ML's key. {NO_EFFECT}",
        "resources": JOB["RankKeys"]["resources"],
    },
    "ParallelTask": {
        "type": "A function of a script.",
        "code": JOB["CommandKeys"]["code"],
        "snapshot": "The digest of the code. Set when it is sent.",
        "entry_script": "The script with `run(mini_batch)`, which gets a list of paths and returns "
        "a list or a data frame, and perhaps `init()` and `shutdown()`.",
        "program_arguments": "Arguments of the script, with `${{inputs.NAME}}`.",
        "environment": JOB["RankKeys"]["environment"],
        "append_row_to": "The output that gets what `run` returned: `${{outputs.NAME}}`.",
    },
    "RetrySettings": {
        "timeout": "Seconds that a mini-batch may take.",
        "max_retries": "How often a mini-batch is tried again.",
    },
    "PipelineComponent": {
        "type": "The type of the component.",
        "jobs": "The steps by name, as in a pipeline job.",
        "settings": "How the steps run, unless the pipeline says so.",
    },
    "ComponentInput": {
        "type": "`number`, `integer`, `string`, `boolean`, or a type of data.",
        "description": DESCRIPTION,
        "optional": "Whether it may be left out. `$[[ ]]` in the command drops what refers to it.",
        "default": "The value if none is given.",
        "min": "The least value.",
        "max": "The highest value.",
        "enum": "The values that are allowed.",
        "mode": "How data reaches the step, unless it says so.",
    },
    "ComponentOutput": {
        "type": "A type of data.",
        "description": DESCRIPTION,
        "mode": "How the output leaves the step, unless it says so.",
    },
    "ComponentNode": {
        **{name: JOB["JobKeys"][name] for name in ("display_name", "description", "tags")},
        **{name: JOB["JobKeys"][name] for name in ("properties", "compute", "identity")},
        "queue_settings": JOB["JobKeys"]["queue_settings"],
        "limits": JOB["CommandJob"]["limits"],
        "services": JOB["CommandJob"]["services"],
        "type": "The type of the step: that of its component.",
        "component": "The component: its file, a mapping, or a registered one as "
        "`azureml:NAME:VERSION` or `azureml:NAME@latest`.",
        "name": "Kept and shown.",
        "comment": "Kept and shown.",
        "inputs": "Values, data, `${{parent.inputs.NAME}}` or "
        "`${{parent.jobs.STEP.outputs.NAME}}`.",
        "outputs": "`${{parent.outputs.NAME}}`, or a mapping as in a command job.",
        "settings": "Of a pipeline component: how its steps run.",
        **dict.fromkeys(
            (
                "mini_batch_size",
                "mini_batch_error_threshold",
                "max_concurrency_per_instance",
                "retry_settings",
                "logging_level",
                "partition_keys",
                "error_threshold",
            ),
            "Of a parallel component: instead of the component's.",
        ),
    },
}
