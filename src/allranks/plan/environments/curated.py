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


# What Azure ML's curated environments have, too: mlflow-skinny is what their azureml-mlflow asks
# for. With the other two it also logs to a file where there is no server of it.
_MLFLOW = ("mlflow-skinny>=3.5,<4", "sqlalchemy", "alembic")
_TREES = ("scikit-learn>=1.7,<2", "pandas", "xgboost", "lightgbm", "matplotlib")


def _versions(
    description: str, pip: tuple[str, ...], torch_backend: str | None = None
) -> Mapping[str, Mapping[str, Any]]:
    """Version 2 has MLflow beside what version 1 has."""
    return {
        "1": _made(description, pip, torch_backend),
        "2": _made(f"{description}, with MLflow", (*pip, *_MLFLOW), torch_backend),
    }


# By name, then by version, the newest last. `auto`: uv looks for the node's GPUs itself.
ENVIRONMENTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "allranks-pytorch-2.13": _versions(
        "PyTorch, for the GPUs of the node or for its CPUs", _TORCH, "auto"
    ),
    "allranks-pytorch-2.13-cpu": _versions("PyTorch for CPUs", _TORCH, "cpu"),
    "allranks-pytorch-2.13-cuda": _versions("PyTorch as PyPI has it, for CUDA", _TORCH),
    "allranks-sklearn-1": _versions("scikit-learn, LightGBM and XGBoost", _TREES),
    "allranks-tensorflow-2.21-cpu": _versions(
        "TensorFlow for CPUs", ("tensorflow-cpu==2.21.0", *_TENSORFLOW)
    ),
    "allranks-tensorflow-2.21-cuda": _versions(
        "TensorFlow with its CUDA", ("tensorflow[and-cuda]==2.21.0", *_TENSORFLOW)
    ),
}
# In the table: a plain Python, of the version in the image's tag, or of the one behind `python=`.
PYTHON = "python"
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
    "mcr.microsoft.com/azureml/curated/*lightgbm*": "allranks-sklearn-1",
    "AzureML-*pytorch*": "allranks-pytorch-2.13",
    "acpt-pytorch-*": "allranks-pytorch-2.13",
    "AzureML-*tensorflow*": "allranks-tensorflow-2.21-cuda",
    "tensorflow-2.*": "allranks-tensorflow-2.21-cuda",
    "AzureML-*sklearn*": "allranks-sklearn-1",
    "AzureML-*lightgbm*": "allranks-sklearn-1",
    "sklearn-1.*": "allranks-sklearn-1",
    "lightgbm-*": "allranks-sklearn-1",
    **{
        f"{registry}python{tag}": PYTHON
        for registry in ("", "library/", "docker.io/", "docker.io/library/")
        for tag in ("", ":*")
    },
    "mcr.microsoft.com/azureml/openmpi*": PYTHON,
    "mcr.microsoft.com/azureml/intelmpi*": PYTHON,
    "mcr.microsoft.com/azureml/minimal-*": PYTHON,
    "mcr.microsoft.com/azureml/base*": PYTHON,
}
