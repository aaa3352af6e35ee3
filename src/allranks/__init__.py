"""allranks runs unmodified distributed training scripts on any cluster.

``import allranks`` is cheap: names are loaded when they are first used.
"""

from __future__ import annotations

import importlib

from allranks.version import __version__ as __version__

# For type checkers; importing `typing` takes longer than everything above.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from allranks.errors import AllranksError as AllranksError
    from allranks.errors import Problem as Problem
    from allranks.errors import SpecError as SpecError
    from allranks.errors import TimedOut as TimedOut
    from allranks.sdk import Client as Client
    from allranks.sdk import Component as Component
    from allranks.sdk import Job as Job
    from allranks.sdk import MLClient as MLClient
    from allranks.sdk import command as command
    from allranks.sdk import load_component as load_component
    from allranks.sdk import load_job as load_job
    from allranks.spec.data import Data as Data
    from allranks.spec.datastore import Datastore as Datastore
    from allranks.spec.job import CommandJob as CommandJob
    from allranks.spec.job_parts import BuildContext as BuildContext
    from allranks.spec.job_parts import DeepSpeedDistribution as DeepSpeedDistribution
    from allranks.spec.job_parts import Environment as Environment
    from allranks.spec.job_parts import HorovodDistribution as HorovodDistribution
    from allranks.spec.job_parts import Input as Input
    from allranks.spec.job_parts import JaxDistribution as JaxDistribution
    from allranks.spec.job_parts import Limits as Limits
    from allranks.spec.job_parts import Metric as Metric
    from allranks.spec.job_parts import MpiDistribution as MpiDistribution
    from allranks.spec.job_parts import NoDistribution as NoDistribution
    from allranks.spec.job_parts import Output as Output
    from allranks.spec.job_parts import PyTorchDistribution as PyTorchDistribution
    from allranks.spec.job_parts import QueueSettings as QueueSettings
    from allranks.spec.job_parts import RayDistribution as RayDistribution
    from allranks.spec.job_parts import Resources as Resources
    from allranks.spec.job_parts import TensorFlowDistribution as TensorFlowDistribution
    from allranks.spec.model import Model as Model
    from allranks.spec.model import ModelVersion as ModelVersion
    from allranks.spec.pipeline.job import PipelineJob as PipelineJob
    from allranks.spec.retry import Retry as Retry
    from allranks.spec.services import AmlTokenConfiguration as AmlTokenConfiguration
    from allranks.spec.services import JobService as JobService
    from allranks.spec.services import JupyterLabJobService as JupyterLabJobService
    from allranks.spec.services import ManagedIdentityConfiguration as ManagedIdentityConfiguration
    from allranks.spec.services import SshJobService as SshJobService
    from allranks.spec.services import TensorBoardJobService as TensorBoardJobService
    from allranks.spec.services import UserIdentityConfiguration as UserIdentityConfiguration
    from allranks.spec.services import VsCodeJobService as VsCodeJobService

_HOMES = {
    "AllranksError": "allranks.errors",
    "Problem": "allranks.errors",
    "SpecError": "allranks.errors",
    "TimedOut": "allranks.errors",
    "Client": "allranks.sdk",
    "Component": "allranks.sdk",
    "Job": "allranks.sdk",
    "MLClient": "allranks.sdk",
    "command": "allranks.sdk",
    "load_component": "allranks.sdk",
    "load_job": "allranks.sdk",
    "Data": "allranks.spec.data",
    "Datastore": "allranks.spec.datastore",
    "CommandJob": "allranks.spec.job",
    "PipelineJob": "allranks.spec.pipeline.job",
    "Model": "allranks.spec.model",
    "ModelVersion": "allranks.spec.model",
    "AmlTokenConfiguration": "allranks.spec.services",
    "JobService": "allranks.spec.services",
    "JupyterLabJobService": "allranks.spec.services",
    "ManagedIdentityConfiguration": "allranks.spec.services",
    "SshJobService": "allranks.spec.services",
    "TensorBoardJobService": "allranks.spec.services",
    "UserIdentityConfiguration": "allranks.spec.services",
    "VsCodeJobService": "allranks.spec.services",
    "BuildContext": "allranks.spec.job_parts",
    "DeepSpeedDistribution": "allranks.spec.job_parts",
    "Environment": "allranks.spec.job_parts",
    "HorovodDistribution": "allranks.spec.job_parts",
    "Input": "allranks.spec.job_parts",
    "JaxDistribution": "allranks.spec.job_parts",
    "Limits": "allranks.spec.job_parts",
    "Metric": "allranks.spec.job_parts",
    "MpiDistribution": "allranks.spec.job_parts",
    "NoDistribution": "allranks.spec.job_parts",
    "Output": "allranks.spec.job_parts",
    "PyTorchDistribution": "allranks.spec.job_parts",
    "QueueSettings": "allranks.spec.job_parts",
    "RayDistribution": "allranks.spec.job_parts",
    "Resources": "allranks.spec.job_parts",
    "Retry": "allranks.spec.retry",
    "TensorFlowDistribution": "allranks.spec.job_parts",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'allranks' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
