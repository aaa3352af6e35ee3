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
    keys = {"description": description, "python": _PYTHON, "pip": list(pip)}
    return keys if torch_backend is None else {**keys, "torch_backend": torch_backend}


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


def _tensorflow(beside: str) -> Any:
    return _made(
        f"TensorFlow, for the GPUs of the node or for its CPUs, with MLflow{beside}",
        ("tensorflow[and-cuda]==2.21.0", *_TENSORFLOW, *_MLFLOW),
        "auto",
    )


# By name, then by version, the newest last. `auto`: the node's GPUs decide what is installed.
ENVIRONMENTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "allranks-pytorch-2.13": _versions(
        "PyTorch, for the GPUs of the node or for its CPUs", _TORCH, "auto"
    ),
    "allranks-pytorch-2.13-cpu": _versions("PyTorch for CPUs", _TORCH, "cpu"),
    "allranks-pytorch-2.13-cuda": _versions("PyTorch as PyPI has it, for CUDA", _TORCH),
    # Its dependencies name a statsmodels that newer SciPys break.
    "allranks-responsibleai-0.36": {
        "1": {
            "description": "Responsible AI toolbox, with MLflow",
            "python": ">=3.10,<3.12",
            "pip": ["responsibleai==0.36.0", "raiwidgets==0.36.0", "scipy<1.12", *_MLFLOW],
        }
    },
    "allranks-sklearn-1": {
        **_versions("scikit-learn, LightGBM and XGBoost", _TREES),
        # MLflow 3 saves models of scikit-learn by skops.
        "3": _made(
            "scikit-learn, LightGBM and XGBoost, with MLflow and skops",
            (*_TREES, *_MLFLOW, "skops"),
        ),
    },
    "allranks-tensorflow-2.21": {"1": _tensorflow("")},
    "allranks-tensorflow-2.21-keras-2": {
        "1": {
            **_tensorflow(" and Keras 2 as `tf.keras`"),
            "conda_file": {"dependencies": [], "variables": {"TF_USE_LEGACY_KERAS": "1"}},
        }
    },
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
    **{
        f"{registry}pytorch/pytorch{tag}": "allranks-pytorch-2.13"
        for registry in ("", "docker.io/")
        for tag in ("", ":*")
    },
    "mcr.microsoft.com/azureml/curated/*pytorch*": "allranks-pytorch-2.13",
    "tensorflow/tensorflow:*-gpu*": "allranks-tensorflow-2.21-cuda",
    **{
        f"{registry}tensorflow/tensorflow{tag}": "allranks-tensorflow-2.21-cpu"
        for registry in ("", "docker.io/")
        for tag in ("", ":*")
    },
    # Until 2.15, `tf.keras` was Keras 2, without which MultiWorkerMirroredStrategy fails.
    "mcr.microsoft.com/azureml/curated/*tensorflow-2.1[6-9]*": "allranks-tensorflow-2.21",
    "mcr.microsoft.com/azureml/curated/*tensorflow*": "allranks-tensorflow-2.21-keras-2",
    "mcr.microsoft.com/azureml/curated/sklearn*": "allranks-sklearn-1",
    "mcr.microsoft.com/azureml/curated/*lightgbm*": "allranks-sklearn-1",
    "mcr.microsoft.com/azureml/curated/*xgboost*": "allranks-sklearn-1",
    "mcr.microsoft.com/azureml/curated/*responsible*": "allranks-responsibleai-0.36",
    "mcr.microsoft.com/azureml/curated/minimal*": PYTHON,
    "nvcr.io/nvidia/pytorch:*": "allranks-pytorch-2.13",
    "nvcr.io/nvidia/tensorflow:*": "allranks-tensorflow-2.21",
    "AzureML-*pytorch*": "allranks-pytorch-2.13",
    "acpt-pytorch-*": "allranks-pytorch-2.13",
    "AzureML-*tensorflow-2.1[6-9]*": "allranks-tensorflow-2.21",
    "AzureML-*tensorflow*": "allranks-tensorflow-2.21-keras-2",
    "tensorflow-2.1[6-9]*": "allranks-tensorflow-2.21",
    "tensorflow-2.*": "allranks-tensorflow-2.21-keras-2",
    "AzureML-*sklearn*": "allranks-sklearn-1",
    "AzureML-*lightgbm*": "allranks-sklearn-1",
    "AzureML-*xgboost*": "allranks-sklearn-1",
    "AzureML-*responsible*": "allranks-responsibleai-0.36",
    "AzureML-AutoML*": "allranks-sklearn-1",
    "AzureML-*minimal*": PYTHON,
    "AzureML-Tutorial": "allranks-sklearn-1",
    "sklearn-0.*": "allranks-sklearn-1",
    "sklearn-1.*": "allranks-sklearn-1",
    "lightgbm-3.*": "allranks-sklearn-1",
    "xgboost-1.*": "allranks-sklearn-1",
    "responsibleai-ubuntu*": "allranks-responsibleai-0.36",
    "responsibleai-0.*": "allranks-responsibleai-0.36",
    "pytorch-1.*": "allranks-pytorch-2.13",
    "python-sdk-v2": "allranks-sklearn-1",
    **{
        f"{registry}python{tag}": PYTHON
        for registry in ("", "library/", "docker.io/", "docker.io/library/")
        for tag in ("", ":*")
    },
    # What brings Python along, or nothing that a job could miss.
    **{
        f"{registry}{image}{tag}": PYTHON
        for registry in ("", "docker.io/", "docker.io/library/")
        for image in ("continuumio/miniconda3", "continuumio/anaconda3", "ubuntu", "debian")
        for tag in ("", ":*")
    },
    "mcr.microsoft.com/azureml/mlflow*": "allranks-sklearn-1",
    "mcr.microsoft.com/azureml/inference-base*": PYTHON,
    "mcr.microsoft.com/azureml/openmpi*": PYTHON,
    "mcr.microsoft.com/azureml/intelmpi*": PYTHON,
    "mcr.microsoft.com/azureml/minimal-*": PYTHON,
    "mcr.microsoft.com/azureml/base*": PYTHON,
}
