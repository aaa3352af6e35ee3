"""Environments that are there without being made, and the images they stand for. Pure.

Names that begin with ``PREFIX`` are theirs alone. A version never changes what it asks for: a newer
one is added.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from packaging.requirements import Requirement

PREFIX = "allranks-"
_PYTHON = ">=3.10,<3.14"
_BESIDE = ("numpy", "pandas", "scikit-learn", "pillow", "tqdm", "tensorboard")
_TORCH = ("torch==2.13.0", *_BESIDE)
_TENSORFLOW = ("tf_keras==2.21.0", *_BESIDE)


def _made(description: str, pip: tuple[str, ...], torch_backend: str | None = None) -> Any:
    keys = {"description": description, "python": _PYTHON, "pip": list(pip)}
    return keys if torch_backend is None else {**keys, "torch_backend": torch_backend}


# What Azure ML's curated environments have, too: the mlflow-skinny that their azureml-mlflow 1.62
# asks for. Newer ones save models of scikit-learn by skops, which refuses most kinds of them.
# With the other two it also logs to a file where there is no server of it.
_MLFLOW = ("mlflow-skinny>=3.5,<=3.9", "sqlalchemy", "alembic")
# What Azure's have of numpy and pandas, as near as each Python has wheels: `np.str` and
# `DataFrame.append` are gone from newer ones.
_NUMPY_1 = (
    "numpy~=1.23.5; python_version < '3.12'",
    "numpy~=1.26.0; python_version == '3.12'",
    "pandas~=1.5.3; python_version < '3.12'",
    "pandas>=2.1,<2.3; python_version >= '3.12'",
)
# The oldest numpy and pandas that new PyTorch and TensorFlow take.
_NUMPY_LATE_1 = ("numpy<2; python_version < '3.13'", "pandas<3")
_TORCHVISION = "torchvision==0.28.0"
_TREES_1 = (
    *_NUMPY_1,
    *("scipy", "joblib", "matplotlib", "tensorboard", "tqdm", "lightgbm~=3.3.5", "xgboost~=1.7.6"),
    *_MLFLOW,
    "skops",
)
_ACPT = (
    *_TORCH,
    *_NUMPY_LATE_1,
    *(_TORCHVISION, "transformers", "deepspeed", "ninja", "onnx", "onnxruntime"),
    *("matplotlib", "psutil"),
    *_MLFLOW,
)
_TREES = ("scikit-learn>=1.7,<2", "pandas", "xgboost", "lightgbm", "matplotlib")


def _versions(
    description: str, pip: tuple[str, ...], torch_backend: str | None = None
) -> Mapping[str, Mapping[str, Any]]:
    """Version 2 has MLflow beside what version 1 has."""
    return {
        "1": _made(description, pip, torch_backend),
        "2": _made(f"{description}, with MLflow", (*pip, *_MLFLOW), torch_backend),
    }


def _tensorflow(beside: str, *pins: str) -> Any:
    return _made(
        f"TensorFlow, for the GPUs of the node or for its CPUs, with MLflow{beside}",
        ("tensorflow[and-cuda]==2.21.0", *_TENSORFLOW, *_MLFLOW, *pins),
        "auto",
    )


def _keras_2(*pins: str) -> Any:
    return {
        **_tensorflow(" and Keras 2 as `tf.keras`", *pins),
        "conda_file": {"dependencies": [], "variables": {"TF_USE_LEGACY_KERAS": "1"}},
    }


def _near_tensorflow(versions: Mapping[str, str], *pins: str) -> Any:
    """The TensorFlow that is nearest to the first of ``versions``, by the Pythons that each has
    wheels for. Azure's have Keras 2 as `tf.keras`, also where TensorFlow's own is Keras 3."""
    version = next(iter(versions))
    lines = [
        f"{package}~={number}.0; python_version {pythons}"
        for package in ("tensorflow[and-cuda]", "tf_keras")
        for number, pythons in versions.items()
    ]
    beside = (*_BESIDE, *_MLFLOW, "matplotlib", "psutil", *pins)
    return {
        **_made(f"TensorFlow {version} with Keras 2 and numpy 1, and MLflow", (*lines, *beside)),
        "torch_backend": "auto",
        "conda_file": {"dependencies": [], "variables": {"TF_USE_LEGACY_KERAS": "1"}},
    }


# By name, then by version, the newest last. `auto`: the node's GPUs decide what is installed.
ENVIRONMENTS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "allranks-acpt-pytorch-2.13": {
        "1": _made(
            "PyTorch with torchvision, DeepSpeed and ONNX Runtime, and MLflow", _ACPT, "auto"
        )
    },
    "allranks-pytorch-2.13": {
        **_versions("PyTorch, for the GPUs of the node or for its CPUs", _TORCH, "auto"),
        "3": _made(
            "PyTorch and torchvision, for the GPUs of the node or for its CPUs, with MLflow",
            (*_TORCH, _TORCHVISION, *_MLFLOW),
            "auto",
        ),
    },
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
        # For models of scikit-learn that are saved by skops.
        "3": _made(
            "scikit-learn, LightGBM and XGBoost, with MLflow and skops",
            (*_TREES, *_MLFLOW, "skops"),
        ),
    },
    "allranks-sklearn-1.1": {
        "1": _made(
            "scikit-learn 1.1, LightGBM 3 and XGBoost 1.7 with pandas 1 and numpy 1, and MLflow",
            (
                "scikit-learn~=1.1.3; python_version < '3.12'",
                "scikit-learn>=1.3,<1.6; python_version >= '3.12'",
                *_TREES_1,
            ),
        )
    },
    "allranks-sklearn-1.5": {
        "1": _made(
            "scikit-learn 1.5, LightGBM 3 and XGBoost 1.7 with pandas 1 and numpy 1, and MLflow",
            ("scikit-learn~=1.5.0", *_TREES_1),
        )
    },
    "allranks-tensorflow-2.15": {
        "1": _near_tensorflow(
            {"2.15": "< '3.12'", "2.16": "== '3.12'", "2.21": ">= '3.13'"}, *_NUMPY_1
        )
    },
    "allranks-tensorflow-2.16": {
        "1": _near_tensorflow(
            {"2.16": "< '3.13'", "2.21": ">= '3.13'"}, *_NUMPY_1[:2], "pandas>=2.1,<2.3"
        )
    },
    "allranks-tensorflow-2.21": {"1": _tensorflow(""), "2": _tensorflow("", *_NUMPY_LATE_1)},
    "allranks-tensorflow-2.21-keras-2": {"1": _keras_2(), "2": _keras_2(*_NUMPY_LATE_1)},
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
    "mcr.microsoft.com/azureml/curated/acpt*": "allranks-acpt-pytorch-2.13",
    "mcr.microsoft.com/azureml/curated/*pytorch*": "allranks-pytorch-2.13",
    **{
        f"{registry}tensorflow/tensorflow:2.{minor}.*": "allranks-tensorflow-2.15"
        for registry in ("", "docker.io/")
        for minor in ("[0-9]", "1[0-5]")
    },
    "tensorflow/tensorflow:*-gpu*": "allranks-tensorflow-2.21-cuda",
    **{
        f"{registry}tensorflow/tensorflow{tag}": "allranks-tensorflow-2.21-cpu"
        for registry in ("", "docker.io/")
        for tag in ("", ":*")
    },
    "mcr.microsoft.com/azureml/curated/*tensorflow-2.1[6-9]*": "allranks-tensorflow-2.16",
    "mcr.microsoft.com/azureml/curated/*tensorflow*": "allranks-tensorflow-2.15",
    "mcr.microsoft.com/azureml/curated/sklearn-1.[2-9]*": "allranks-sklearn-1.5",
    "mcr.microsoft.com/azureml/curated/sklearn*": "allranks-sklearn-1.1",
    "mcr.microsoft.com/azureml/curated/*lightgbm*": "allranks-sklearn-1.5",
    "mcr.microsoft.com/azureml/curated/*xgboost*": "allranks-sklearn-1.5",
    "mcr.microsoft.com/azureml/curated/*responsible*": "allranks-responsibleai-0.36",
    "mcr.microsoft.com/azureml/curated/minimal*": PYTHON,
    "nvcr.io/nvidia/pytorch:*": "allranks-pytorch-2.13",
    "nvcr.io/nvidia/tensorflow:*": "allranks-tensorflow-2.21",
    "AzureML-acpt*": "allranks-acpt-pytorch-2.13",
    "AzureML-*pytorch*": "allranks-pytorch-2.13",
    "acpt-pytorch-*": "allranks-acpt-pytorch-2.13",
    "AzureML-*tensorflow-2.1[6-9]*": "allranks-tensorflow-2.16",
    "AzureML-*tensorflow*": "allranks-tensorflow-2.15",
    "tensorflow-2.1[6-9]*": "allranks-tensorflow-2.16",
    "tensorflow-2.*": "allranks-tensorflow-2.15",
    "AzureML-sklearn-1.[2-9]*": "allranks-sklearn-1.5",
    "AzureML-*sklearn*": "allranks-sklearn-1.1",
    "AzureML-*lightgbm*": "allranks-sklearn-1.5",
    "AzureML-*xgboost*": "allranks-sklearn-1.5",
    "AzureML-*responsible*": "allranks-responsibleai-0.36",
    "AzureML-AutoML*": "allranks-sklearn-1",
    "AzureML-*minimal*": PYTHON,
    "AzureML-Tutorial": "allranks-sklearn-1.1",
    "sklearn-0.*": "allranks-sklearn-1.1",
    "sklearn-1.[01]*": "allranks-sklearn-1.1",
    "sklearn-1.*": "allranks-sklearn-1.5",
    "lightgbm-3.*": "allranks-sklearn-1.5",
    "xgboost-1.*": "allranks-sklearn-1.5",
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

# Packages that are left out where the index has no build of them for the node's PyTorch.
OPTIONAL = ("torchvision",)
# What a name promises: a version of a package (`23.05` is none), and packages that Azure's of such
# names have.
_VERSIONED = re.compile(r"(pytorch|tensorflow|sklearn|lightgbm|xgboost)[-:](\d(?:\.\d+)?)(?!\d)")
_NEWEST = {"numpy": "2", "pandas": "3"}
_DISTRIBUTIONS = {"pytorch": "torch", "sklearn": "scikit-learn"}
_BESIDE_NAMES: Mapping[str, tuple[str, ...]] = {
    r"acpt": ("torchvision", "deepspeed", "onnxruntime", "transformers"),
    r"azureml-pytorch-1": ("horovod",),
    r"tensorflow-2": ("horovod",),
    r"tensorflow-2\.1[6-9]": ("tensorflow-datasets",),
    r"pytorch": ("torchvision",),
}
_NUMPY_1_NAMES = re.compile(r"sklearn|lightgbm|xgboost|pytorch-1|tensorflow-2")
_PANDAS_1_NAMES = re.compile(r"sklearn|lightgbm|xgboost")


def difference(name: str, pip: Iterable[str]) -> str:
    """How the environment of ``pip`` differs from what ``name`` promises: major versions, on the
    Python that runs this, and packages it lacks; as `torch 2 for 1.10; without horovod`, or empty.
    """
    parsed = (Requirement(line) for line in pip)
    packages = {
        package.name: package
        for package in parsed
        if not package.marker or package.marker.evaluate()
    }
    name = name.lower()
    apart = []
    for package, promised in _promised(name):
        version = _lowest(packages[package]) if package in packages else ""
        if version and version.split(".")[0] != promised.split(".")[0]:
            apart.append(f"{package} {version} for {promised}")
    lacking = dict.fromkeys(
        package
        for pattern, beside in _BESIDE_NAMES.items()
        if re.search(pattern, name)
        for package in beside
        if package not in packages
    )
    parts = [", ".join(apart), f"without {', '.join(lacking)}" if lacking else ""]
    return "; ".join(part for part in parts if part)


def _promised(name: str) -> Iterator[tuple[str, str]]:
    for word, version in _VERSIONED.findall(name):
        yield _DISTRIBUTIONS.get(word, word), version
    if _NUMPY_1_NAMES.search(name):
        yield "numpy", "1"
    if _PANDAS_1_NAMES.search(name):
        yield "pandas", "1"


def _lowest(requirement: Requirement) -> str:
    """The version that a requirement begins with, such as `2.13`; with only an upper limit, the
    major version below it; without any, the newest major version, or empty."""
    for specifier in requirement.specifier:
        if specifier.operator == "<":
            return str(int(specifier.version.partition(".")[0]) - 1)
        if specifier.operator in ("==", "~=", ">="):
            return ".".join(specifier.version.split(".")[:2])
    return _NEWEST.get(requirement.name, "")
