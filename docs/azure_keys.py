"""What becomes of every key of Azure's schemas: tried, not written down.

`azure_schemas.json` has the keys of the schemas of azure-ai-ml, the version in the file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from allranks.cli.assets.versions import IDLE
from allranks.core.job.compile import CompileContext, compile
from allranks.errors import SpecError
from allranks.spec import compute, data, datastore, environment, model
from allranks.spec.any_job import parse_any
from allranks.spec.ignored_keys import IGNORED, ignored_keys
from allranks.spec.job import CommandJob
from allranks.spec.pipeline.component import parse_component
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import steps_of
from allranks.spec.schedule import parse_schedule

_FILE = json.loads((Path(__file__).parent / "azure_schemas.json").read_text())
VERSION: str = _FILE["azure-ai-ml"]
SCHEMAS: Mapping[str, list[str]] = _FILE["schemas"]
# Keys that are written once, by Azure, or name the schema.
_NAMES = ("$schema", "id")


class Verdict(NamedTuple):
    """``status`` is `used`, `noted` or `refused`; ``why`` for those that are not used."""

    kind: str
    key: str
    status: str
    why: str = ""


class _Place(NamedTuple):
    """A valid file, and where in it a key of the schema stands."""

    read: Callable[[Any], Any]
    file: Mapping[str, Any]
    at: str = ""


_JOB = {"type": "command", "command": "true"}
_PARALLEL = {
    "type": "parallel",
    "inputs": {"a": {"path": "a"}},
    "input_data": "${{inputs.a}}",
    "task": {"entry_script": "a.py"},
}
_CHOICE = {"type": "choice", "values": [1]}
_SWEEP: Mapping[str, Any] = {
    "type": "sweep",
    "trial": {"command": "echo ${{search_space.a}}"},
    "search_space": {"a": _CHOICE},
    "objective": {"goal": "minimize", "primary_metric": "loss"},
    "limits": {"max_total_trials": 1},
}
_COMPONENT = {"type": "command", "command": "true", "name": "c"}
_WEEKLY = {"type": "recurrence", "frequency": "week", "schedule": {"hours": 1}}


def _pipeline(step: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "pipeline", "jobs": {"a": dict(step)}}


def _schedule(trigger: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": "s", "trigger": dict(trigger), "create_job": "job.yml"}


def _steps(file: Any) -> Any:
    return steps_of(PipelineJob.parse(file))


def _compiled(file: Any) -> Any:
    job = parse_any(file)
    if isinstance(job, CommandJob):
        compile(job, CompileContext("a", "/home/jobs/a", ("agent",), "e"))
    return job


def _with(part: str, value: Any, of: Mapping[str, Any] = _JOB) -> dict[str, Any]:
    return {**of, part: value}


_BLOB = {"name": "d", "type": "azure_blob", "account_name": "a", "container_name": "c"}
_LAKE = {"name": "d", "type": "azure_data_lake_gen2", "account_name": "a", "filesystem": "f"}
_PARALLEL_STEP = _Place(_steps, _pipeline(_PARALLEL), "jobs.a")
PLACES: Mapping[str, _Place] = {
    "command job": _Place(parse_any, _JOB),
    "sweep job": _Place(parse_any, _SWEEP),
    "pipeline job": _Place(parse_any, _pipeline(_JOB)),
    "command component": _Place(parse_component, _COMPONENT),
    "pipeline component": _Place(parse_component, _pipeline(_JOB)),
    "parallel component": _Place(parse_component, {**_PARALLEL, "inputs": {"a": {}}}),
    "step": _Place(_steps, _pipeline(_JOB), "jobs.a"),
    "sweep step": _Place(_steps, _pipeline(_SWEEP), "jobs.a"),
    "parallel step": _PARALLEL_STEP,
    "trial": _Place(parse_any, _SWEEP, "trial"),
    "input": _Place(parse_any, _with("inputs", {"a": {"path": "a"}}), "inputs.a"),
    "output": _Place(parse_any, _with("outputs", {"a": {}}), "outputs.a"),
    "component input": _Place(parse_component, _with("inputs", {"a": {}}), "inputs.a"),
    "component parameter": _Place(
        parse_component, _with("inputs", {"a": {"type": "integer"}}), "inputs.a"
    ),
    "component output": _Place(parse_component, _with("outputs", {"a": {}}), "outputs.a"),
    **{
        part: _Place(parse_any, _with(part, {}), part)
        for part in ("resources", "limits", "queue_settings")
    },
    "sweep limits": _Place(parse_any, _SWEEP, "limits"),
    **{
        kind: _Place(parse_any, _with("services", {"a": {"type": kind}}), "services.a")
        for kind in ("service", "ssh", "tensor_board")
    },
    "managed identity": _Place(parse_any, _with("identity", {"type": "managed"}), "identity"),
    "environment": _Place(environment.parse, {"name": "e", "image": "python:3.11"}),
    "build": _Place(environment.parse, {"name": "e", "build": {"path": "."}}, "build"),
    "data": _Place(data.parse, {"name": "d", "path": "a"}),
    "model": _Place(model.parse, {"name": "d", "path": "a"}),
    "compute": _Place(compute.parse, {"name": "c", "type": "local"}),
    "schedule": _Place(parse_schedule, _schedule(_WEEKLY)),
    "cron": _Place(
        parse_schedule, _schedule({"type": "cron", "expression": "1 1 * * *"}), "trigger"
    ),
    "recurrence": _Place(parse_schedule, _schedule(_WEEKLY), "trigger"),
    "pattern": _Place(parse_schedule, _schedule(_WEEKLY), "trigger.schedule"),
    "azure_blob": _Place(datastore.parse, _BLOB),
    "azure_data_lake_gen2": _Place(datastore.parse, _LAKE),
    "azure_file": _Place(datastore.parse, {**_BLOB, "type": "azure_file"}),
    **{
        kind: _Place(_compiled, _with("distribution", {"type": kind}), "distribution")
        for kind in ("pytorch", "mpi", "tensorflow", "ray")
    },
    "objective": _Place(parse_any, _SWEEP, "objective"),
    **{
        kind: _Place(
            parse_any, {**_SWEEP, "early_termination": {"type": kind, **more}}, "early_termination"
        )
        for kind, more in (
            ("bandit", {"slack_factor": 0.1}),
            ("median_stopping", {}),
            ("truncation_selection", {"truncation_percentage": 10}),
        )
    },
    "random": _Place(
        parse_any, {**_SWEEP, "sampling_algorithm": {"type": "random"}}, "sampling_algorithm"
    ),
    "retry_settings": _PARALLEL_STEP._replace(at="jobs.a.retry_settings"),
    "task": _PARALLEL_STEP._replace(at="jobs.a.task"),
    "settings": _Place(parse_any, _pipeline(_JOB), "settings"),
}
_TEXTS = {"a": "b"}
# A value of each key; that of a whole place stays.
_VALUES: Mapping[str, Any] = {
    "additional_includes": ["a"],
    "allowed_deployment_templates": ["a"],
    "build": {"path": "."},
    "compute": "local",
    "conda_file": {"dependencies": ["pip"]},
    "continue_on_step_failure": False,
    "credentials": {"sas_token": "a"},
    "early_termination": {"type": "median_stopping"},
    "enable_node_public_ip": True,
    "end_time": "2099-01-01T00:00:00",
    "enum": [1],
    "environment": "current",
    "flavors": {"a": {}},
    "force_rerun": True,
    "frequency": "week",
    "goal": "maximize",
    "identity": {"type": "managed"},
    "include_dashboard": True,
    "inputs": {"a": {"path": "a"}},
    "is_deterministic": False,
    "job_tier": "spot",
    "limits": {"timeout": 60},
    "locations": ["a"],
    "month_days": [1],
    "nodes": "all",
    "optional": True,
    "os_type": "linux",
    "outputs": {"a": {}},
    "partition_keys": ["a"],
    "priority": "high",
    "retry_settings": {"timeout": 1},
    "rule": "sobol",
    "sampling_algorithm": "grid",
    "schedule": {"hours": 2},
    "services": {"a": {"type": "ssh"}},
    "settings": {"force_rerun": True},
    "start_time": "2026-01-01T00:00:00",
    "tier": "dedicated",
    "time_zone": "UTC",
    "week_days": ["monday"],
    **dict.fromkeys(("environment_variables", "properties", "tags"), _TEXTS),
    "distribution": {"type": "pytorch"},
    "resources": {"instance_count": 1},
    "queue_settings": {"job_tier": "spot"},
    "auto_delete_setting": {},
    "inference_config": {},
    "network_settings": {},
    "ssh_settings": {},
    "system_metadata": {},
}
_MODES = {"input": "download", "component input": "download"}
# What the name of a key holds whose value is a number.
_NUMBERS = (
    *("count", "interval", "timeout", "seed", "port", "hours", "minutes", "min", "max", "default"),
    *("size", "error_threshold", "retries", "trials", "instances", "concurrency", "idle_time"),
    *("delay_evaluation", "percentage", "factor", "amount", "logbase"),
)
_PRECISE = {
    ("component input", "type"): "mltable",
    ("component output", "type"): "mltable",
    ("input", "type"): "mltable",
    ("output", "type"): "mltable",
    ("task", "type"): "run_function",
    ("ray", "port"): 1234,
    ("sweep job", "limits"): {"max_total_trials": 2},
    ("sweep step", "limits"): {"max_total_trials": 2},
    ("component parameter", "type"): "integer",
    ("command component", "inputs"): {"a": {"type": "integer"}},
    ("pipeline component", "inputs"): {"a": {"type": "integer"}},
    ("parallel component", "inputs"): {"a": {}},
    ("pipeline job", "component"): {"type": "pipeline", "jobs": {"a": _JOB}},
    ("model", "type"): "custom_model",
    ("data", "type"): "uri_folder",
    ("resources", "properties"): {"local": {"cpus": 1}},
    ("resources", "shm_size"): "1g",
    ("resources", "docker_args"): "--cpus 1",
    ("tensorflow", "worker_count"): 1,
    ("random", "logbase"): 2,
    ("compute", "min_instances"): 1,
    ("bandit", "slack_amount"): 0.5,
    ("parallel step", "component"): {**_PARALLEL, "inputs": {"a": {}}, "name": "c"},
    ("step", "component"): _COMPONENT,
    ("task", "append_row_to"): "${{outputs.o}}",
    ("service", "properties"): {"a": "b"},
    ("settings", "default_datastore"): "a",
}


def verdicts() -> Iterator[Verdict]:
    """Every key of every schema."""
    for kind, keys in SCHEMAS.items():
        for key in keys:
            if key not in _NAMES:
                yield verdict(kind, key)


def verdict(kind: str, key: str) -> Verdict:
    """Try a file with the key. Raises SpecError if it refuses something else."""
    place = PLACES[kind]
    file: Any = deepcopy(dict(place.file))
    part = file
    for step in filter(None, place.at.split(".")):
        part = part.setdefault(step, {})
    if key not in part:
        part[key] = _value(kind, key)
    if kind == "pipeline job" and key == "component":
        del file["jobs"]
    if kind in ("step", "parallel step") and key == "component":
        file["jobs"]["a"] = {key: part[key], "inputs": part.get("inputs") or {}}
    if (kind, key) == ("bandit", "slack_amount"):
        del part["slack_factor"]
    if (kind, key) == ("task", "append_row_to"):
        file["jobs"]["a"]["outputs"] = {"o": {}}
    if kind == "environment" and key == "build":
        del file["image"]
    if key == "month_days":
        file["trigger"]["frequency"] = "month"
    if key == "comment" and kind != "sweep step":  # of steps that run a component
        component = _COMPONENT if kind == "step" else {**_PARALLEL, "inputs": {"a": {}}}
        file["jobs"]["a"] = {key: "a", "component": component, "inputs": part.get("inputs") or {}}
    where = f"{place.at}.{key}".lstrip(".")
    try:
        read = place.read(file)
    except SpecError as error:
        own = [each for each in error.problems if _is_of(each.where or "", kind, key)]
        if not own:
            raise
        hint = own[0].hint or ""
        generic = hint.startswith(("known here", "did you mean"))
        return Verdict(kind, key, "refused", "" if generic else hint)
    if kind == "compute" and key in read[1]:
        return Verdict(kind, key, "noted", "the cluster exists")
    if kind in ("data", "environment", "model") and key in IDLE:
        return Verdict(kind, key, "noted", IGNORED.get(f"environment.{key}") or IGNORED[key])
    noted = dict(ignored_keys(file))
    if where in noted:
        return Verdict(kind, key, "noted", noted[where])
    return Verdict(kind, key, "used")


def _is_of(where: str, kind: str, key: str) -> bool:
    return where.rpartition(".")[2] == key or (kind == "azure_file" and where == "type")


def _value(kind: str, key: str) -> Any:
    if (kind, key) in _PRECISE:
        return deepcopy(_PRECISE[kind, key])
    if key in _VALUES:
        return deepcopy(_VALUES[key])
    if key == "mode":
        return _MODES.get(kind, "upload")
    return 1 if any(word in key for word in _NUMBERS) else "a"
