"""Environments that are there without being made, and the images they stand for. Pure.

Names that begin with ``PREFIX`` are theirs alone. A version never changes what it asks for: a newer
one is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

PREFIX = "allranks-"
_PYTHON = ">=3.10,<3.14"
_BESIDE = ("numpy", "pandas", "scikit-learn", "pillow", "tqdm", "tensorboard")
_TORCH = ("torch==2.13.0", *_BESIDE)
_TENSORFLOW = ("tf_keras==2.21.0", *_BESIDE)


def _made(description: str, pip: tuple[str, ...], torch_backend: str | None = None) -> Any:
    found = {"description": description, "python": _PYTHON, "pip": list(pip)}
    return found if torch_backend is None else {**found, "torch_backend": torch_backend}


# By name, then by version, the newest last. `auto`: uv looks for the node's GPUs itself.
ENVIRONMENTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "allranks-pytorch-2.13": {
        "1": _made("PyTorch, for the GPUs of the node or for its CPUs", _TORCH, "auto")
    },
    "allranks-pytorch-2.13-cpu": {"1": _made("PyTorch for CPUs", _TORCH, "cpu")},
    "allranks-pytorch-2.13-cuda": {"1": _made("PyTorch as PyPI has it, for CUDA", _TORCH)},
    "allranks-sklearn-1": {
        "1": _made("scikit-learn and what trees are grown with", ("scikit-learn>=1.7,<2", "pandas", "xgboost", "lightgbm", "matplotlib"))  # noqa: E501
    },
    "allranks-tensorflow-2.21-cpu": {
        "1": _made("TensorFlow for CPUs", ("tensorflow-cpu==2.21.0", *_TENSORFLOW))
    },
    "allranks-tensorflow-2.21-cuda": {
        "1": _made("TensorFlow with its CUDA", ("tensorflow[and-cuda]==2.21.0", *_TENSORFLOW))
    },
}  # fmt: skip
# Which environment is taken for an image where no container engine is chosen, and for an
# environment of Azure's that is not here.
TABLE: Mapping[str, str] = {
    "pytorch/pytorch:*": "allranks-pytorch-2.13",
    "docker.io/pytorch/pytorch:*": "allranks-pytorch-2.13",
    "mcr.microsoft.com/azureml/curated/*pytorch*": "allranks-pytorch-2.13",
    "tensorflow/tensorflow:*-gpu*": "allranks-tensorflow-2.21-cuda",
    "tensorflow/tensorflow:*": "allranks-tensorflow-2.21-cpu",
    "docker.io/tensorflow/tensorflow:*": "allranks-tensorflow-2.21-cpu",
    "mcr.microsoft.com/azureml/curated/*tensorflow*": "allranks-tensorflow-2.21-cuda",
    "mcr.microsoft.com/azureml/curated/sklearn*": "allranks-sklearn-1",
    "AzureML-*pytorch*": "allranks-pytorch-2.13",
    "acpt-pytorch-*": "allranks-pytorch-2.13",
    "AzureML-*tensorflow*": "allranks-tensorflow-2.21-cuda",
    "AzureML-*sklearn*": "allranks-sklearn-1",
    "sklearn-1.*": "allranks-sklearn-1",
}
