"""The environment that a model brings."""

from __future__ import annotations

import pytest

from allranks.core.environments.of_model import environment_of, folder_of
from allranks.errors import SpecError

CONDA = """
name: mlflow-env
channels: [conda-forge]
dependencies:
- python=3.8.16
- pip<=21.2.4
- pip:
  - mlflow==2.9.2
  - scikit-learn==1.0.2  # as it was
"""
PYTHON_ENV = "python: 3.10\nbuild_dependencies: [pip]\ndependencies:\n- -r requirements.txt\n"
REQUIREMENTS = "-c constraints.txt\nMLflow-skinny\nnumpy==1.26.4\n-r requirements.txt\n"


def test_conda_comes_first():
    texts = {"conda.yaml": CONDA, "requirements.txt": "numpy==9"}
    assert environment_of(texts, "birds:1") == {
        "description": "conda.yaml of the model birds:1",
        "nearest_python": True,
        "python": "3.8",
        "pip": ["pip<=21.2.4", "mlflow==2.9.2", "scikit-learn==1.0.2", "setuptools<81"],
    }


@pytest.mark.parametrize("dependencies", ["5", "{a: 1}", "true"])
def test_dependencies_that_are_no_list_are_named(dependencies: str):
    with pytest.raises(SpecError, match="list of packages"):
        environment_of({"python_env.yaml": f"dependencies: {dependencies}"}, "birds:1")


def test_python_env_names_files():
    texts = {"python_env.yaml": PYTHON_ENV, "requirements.txt": REQUIREMENTS}
    made = environment_of({**texts, "constraints.txt": "scipy<2\n"}, "birds:1")
    assert made is not None
    assert (made["python"], made["constraints"]) == ("3.10", ["scipy<2"])
    # A file that includes itself is read once, and refused later as one that is not there.
    assert made["pip"] == [
        "MLflow-skinny",
        "numpy==1.26.4",
        "-r requirements.txt",
        "setuptools<81",
    ]


def test_requirements_alone_get_mlflow():
    made = environment_of({"requirements.txt": "numpy\n"}, "birds:1")
    assert made is not None
    assert (made["pip"], "python" in made) == (["numpy", "mlflow", "setuptools<81"], False)
    assert environment_of({}, "birds:1") is None


def test_what_cannot_be_had_names_the_file():
    with pytest.raises(SpecError) as caught:
        environment_of({"conda.yaml": "dependencies: [gdal]"}, "birds:1")
    assert caught.value.file == "conda.yaml of the model birds:1"


def test_the_folder_of_a_model():
    assert folder_of(["a/MLmodel", "a/b/MLmodel"]) == "a/"
    assert folder_of(["MLmodel"]) == ""
    assert folder_of(["model.pkl"]) is None
