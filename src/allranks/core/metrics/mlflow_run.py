"""What a job is in MLflow: its run's id, name, parameters and tags, and what its series are called.

Pure. The limits are those that MLflow 3 checks (mlflow/utils/validation.py).
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from allranks.core.distributions.topology import world
from allranks.core.plan import Task
from allranks.masking import without_credentials
from allranks.statuses import JobStatus

# By these tags a run is known as a job's: by the id its ranks were told, and by its name.
RUN_TAG, JOB_TAG = "allranks.run", "allranks.job"
PARENT_TAG = "mlflow.parentRunId"

STATUS = {
    JobStatus.NOT_STARTED: "SCHEDULED",
    JobStatus.QUEUED: "SCHEDULED",
    JobStatus.PROVISIONING: "SCHEDULED",
    JobStatus.PREPARING: "RUNNING",
    JobStatus.RUNNING: "RUNNING",
    JobStatus.FINALIZING: "RUNNING",
    JobStatus.COMPLETED: "FINISHED",
    JobStatus.FAILED: "FAILED",
    JobStatus.CANCELED: "KILLED",
}

_LONGEST_NAME, _LONGEST_VALUE = 250, 6000
_REFUSED = re.compile(r"[^\w.\-/ :]")
_MEGABYTE = 1e6


class RunData(NamedTuple):
    """What is told of a job once: when its run is made, and its parameters when it has ended. A
    parameter never changes in MLflow: before that they are the script's to tell."""

    name: str
    params: Mapping[str, str]
    tags: Mapping[str, str]


def run_id(job: str, created_at: float) -> str:
    """The id that a job's ranks are told, before MLflow has been asked for one; of its shape."""
    return hashlib.sha256(f"mlflow run\0{job}\0{created_at!r}".encode()).hexdigest()[:32]


def run_data(job: str, run: str, spec: Mapping[str, Any], task: Task, compute: str) -> RunData:
    """All that is known of the job: parameters are its literal inputs and
    those of its sweep, the rest are tags."""
    git = spec.get("properties") or {}
    tags = {
        **{_users(str(key)): str(value) for key, value in (spec.get("tags") or {}).items()},
        RUN_TAG: run,
        JOB_TAG: job,
        "mlflow.source.type": "JOB",
        "mlflow.source.name": task.command,
        "mlflow.source.git.commit": str(git.get("azureml.git.commit", "")),
        "mlflow.source.git.branch": str(git.get("azureml.git.branch", "")),
        "mlflow.source.git.repoURL": str(git.get("azureml.git.repository_uri", "")),
        "mlflow.note.content": str(spec.get("description") or ""),
        "allranks.compute": compute,
        "allranks.code": task.code or task.in_place or "",
        "allranks.environment": environment(task),
        "allranks.distribution": task.distribution,
        "allranks.nodes": str(task.nodes),
        "allranks.processes": str(world(task)),
    }
    params = {}
    for item in task.inputs:
        if item.text is not None:
            params[name(item.name)] = without_credentials(item.text)[:_LONGEST_VALUE]
        tags[f"allranks.input.{item.name}"] = (
            item.text or item.asset or item.uri or item.source or ""
        )
    for parameter, value in task.parameters.items():
        params[name(parameter)] = without_credentials(value)[:_LONGEST_VALUE]
    shown = {
        name(key): without_credentials(value)[:_LONGEST_VALUE]
        for key, value in tags.items()
        if value
    }
    return RunData(str(spec.get("display_name") or job), params, shown)


def environment(task: Task) -> str:
    """What the ranks' environment is called, or what it is made of."""
    if task.environment:
        return task.environment
    image = [] if task.container is None else [task.container.image or task.container.context]
    packages = [] if task.recipe is None else [*task.recipe.requirements]
    return "\n".join([*image, *packages]) or ("current" if task.recipe is None else "")


def _users(tag: str) -> str:
    """What MLflow and we say by tags of these names is not for a user's to say."""
    return f"tag.{tag}" if tag.startswith(("mlflow.", "allranks.")) else tag


def name(original: str) -> str:
    """That name, if MLflow takes it; else one much like it that it takes, and that no other name
    becomes."""
    if _is_taken(original):
        return original
    parts = _REFUSED.sub("_", original).split("/")
    plain = "/".join(part for part in parts if part.strip(".")) or "_"
    mark = hashlib.sha256(original.encode(errors="replace")).hexdigest()[:4]
    return f"{plain[: _LONGEST_NAME - 5]}_{mark}"


def _is_taken(text: str) -> bool:
    norm = posixpath.normpath(text)
    unique = norm == text and norm != "." and not norm.startswith(("..", "/"))
    return unique and not _REFUSED.search(text) and 0 < len(text) <= _LONGEST_NAME


def renamed(names: Iterable[str]) -> dict[str, str]:
    """Those that MLflow does not take, and what they are called there."""
    return {each: name(each) for each in names if name(each) != each}


def metric(printed: str, rank: int | None, several: bool) -> str:
    """What a metric that ranks printed is called; ``several``: more than one rank tells it."""
    return name(f"{printed}/rank_{rank}" if several else printed)


# What MLflow calls them, and by what ours are divided.
_OF_NODE = {
    "node_cpu": ("cpu_utilization_percentage", 1.0),
    "node_memory": ("system_memory_usage_megabytes", _MEGABYTE),
    "node_memory_total": ("system_memory_total_megabytes", _MEGABYTE),
    "net_in": ("network_receive_megabytes_per_second", _MEGABYTE),
    "net_out": ("network_transmit_megabytes_per_second", _MEGABYTE),
    "node_disk_read": ("disk_read_megabytes_per_second", _MEGABYTE),
    "node_disk_write": ("disk_write_megabytes_per_second", _MEGABYTE),
}
# Of the job's own processes.
_OF_JOB = {
    "cpu": ("job_cpu_utilization_percentage", 1.0),
    "memory": ("job_memory_usage_megabytes", _MEGABYTE),
    "memory_total": ("job_memory_total_megabytes", _MEGABYTE),
    "disk_read": ("job_disk_read_megabytes_per_second", _MEGABYTE),
    "disk_write": ("job_disk_write_megabytes_per_second", _MEGABYTE),
}
_OF_RANK = {
    "cpu": ("cpu_utilization_percentage", 1.0),
    "memory": ("system_memory_usage_megabytes", _MEGABYTE),
}
_OF_GPU = {
    "gpu_load": ("utilization_percentage", 1.0),
    "gpu_memory": ("memory_usage_megabytes", _MEGABYTE),
    "gpu_memory_total": ("memory_total_megabytes", _MEGABYTE),
    "gpu_power": ("power_usage_watts", 1.0),
    "gpu_temperature": ("temperature_celsius", 1.0),
}


class Resource(NamedTuple):
    """A resource series as a system metric of MLflow's."""

    name: str
    divisor: float


def resource(
    series: str, nodes: int, node: int, rank: int | None = None, gpu: int | None = None
) -> Resource:
    """In the place where MLflow's page shows system metrics, in its units."""
    of, table = "", {**_OF_NODE, **_OF_JOB}
    if gpu is not None:
        of, table = f"gpu_{gpu}_", _OF_GPU
    elif rank is not None:
        of, table = f"rank_{rank}_", _OF_RANK
    theirs, divisor = table.get(series, (series, 1.0))
    place = f"system/node_{node}" if nodes > 1 else "system"
    return Resource(name(f"{place}/{of}{theirs}"), divisor)
