"""The Python SDK: build, submit and watch jobs. Its shape is that of Azure ML's MLClient.

from allranks import Client, command, PyTorchDistribution

job = command(command="python train.py", code="src", instance_count=3,
              distribution=PyTorchDistribution())
client = Client()
made = client.jobs.create_or_update(job)
client.jobs.stream(made.name)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.sdk.client import Client as Client
    from allranks.sdk.client import Job as Job
    from allranks.sdk.client import MLClient as MLClient
    from allranks.sdk.pipelines.components import Component as Component
    from allranks.sdk.pipelines.components import load_component as load_component
    from allranks.sdk.submit.build import command as command
    from allranks.sdk.submit.build import load_job as load_job

# The CLI imports modules of this package at every start, so they must not import the models.
_HOMES = {
    "Client": "allranks.sdk.client",
    "Job": "allranks.sdk.client",
    "MLClient": "allranks.sdk.client",
    "Component": "allranks.sdk.pipelines.components",
    "load_component": "allranks.sdk.pipelines.components",
    "command": "allranks.sdk.submit.build",
    "load_job": "allranks.sdk.submit.build",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'allranks.sdk' has no attribute {name!r}")
    import importlib  # lazy: see above

    return getattr(importlib.import_module(_HOMES[name]), name)
