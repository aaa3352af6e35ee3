"""allranks: one spec, every rank, any cluster.

``import allranks`` costs nothing: the names below are loaded when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allranks.errors import AllranksError as AllranksError
    from allranks.errors import SpecError as SpecError
    from allranks.sdk import Client as Client
    from allranks.sdk import command as command
    from allranks.sdk import load_job as load_job
    from allranks.spec.job import CommandJob as CommandJob
    from allranks.spec.values import Environment as Environment
    from allranks.spec.values import Input as Input
    from allranks.spec.values import Output as Output
    from allranks.spec.values import PyTorchDistribution as PyTorchDistribution
    from allranks.spec.values import TensorFlowDistribution as TensorFlowDistribution

__version__ = "0.1.0"

_HOMES = {
    "AllranksError": "allranks.errors",
    "SpecError": "allranks.errors",
    "Client": "allranks.sdk",
    "command": "allranks.sdk",
    "load_job": "allranks.sdk",
    "CommandJob": "allranks.spec.job",
    "Environment": "allranks.spec.values",
    "Input": "allranks.spec.values",
    "Output": "allranks.spec.values",
    "PyTorchDistribution": "allranks.spec.values",
    "TensorFlowDistribution": "allranks.spec.values",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'allranks' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
