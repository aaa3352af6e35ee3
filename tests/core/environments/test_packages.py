"""What is installed in the place of the packages that an environment asks for."""

from collections.abc import Mapping

import pytest

from allranks.core.environments.packages import Replaced, replaced
from allranks.core.environments.recipe import Resolved, entry, recipe
from allranks.errors import UsageError
from allranks.spec.job_parts import Environment


def take(*lines: str, table: Mapping[str, str] | None = None) -> Replaced:
    return replaced(lines, (table or {}).get)


@pytest.mark.parametrize(
    "line",
    [
        "azureml-defaults",
        "azureml-core~=1.20.0",
        "azureml_sdk==1.0",
        "azureml-train-automl",
        "azureml-dataset-runtime[fuse,pandas]",
        "azureml-telemetry; python_version > '3'",
    ],
)
def test_packages_of_azure_ml_are_left_out(line: str):
    assert take(line, "numpy") == (
        ("numpy",),
        (f"left out: {line} (it is only for Azure ML)",),
    )


def test_azureml_mlflow_becomes_mlflow():
    assert take("azureml-mlflow==1.40").lines == ("mlflow",)
    found = take("mlflow==2.1", "azureml-mlflow")
    assert found.lines == ("mlflow==2.1",)
    assert found.notes == ("left out: azureml-mlflow (mlflow is in the environment)",)
    assert take("azureml-mlflow", table={"azureml-mlflow": "mlflow-skinny"}).lines == (
        "mlflow-skinny",
    )


def test_old_packages_get_the_numpy_they_were_built_for():
    found = take("numpy", "pandas==0.25.3", table={"pandas==0.25.3": "pandas==1.5.0"})
    assert found.lines == ("numpy", "pandas==1.5.0", "numpy<2")
    assert found.notes[-1] == "numpy<2 is installed, too: pandas==1.5.0 was built for it"
    for lines in (("numpy~=1.26", "pandas==1.5.0"), ("pandas==2.2.2",), ("pandas>=1.5",)):
        assert take(*lines).lines == lines


def test_the_map_drops_a_package_in_every_version_or_in_one():
    assert take("Horovod==0.19.5", "six", table={"horovod": "none"}) == (
        ("six",),
        ("left out: Horovod==0.19.5",),
    )
    assert take("horovod==0.19.5", table={"horovod==0.19.5": "none"}).lines == ()
    assert take("horovod==0.20", table={"horovod==0.19.5": "none"}).lines == ("horovod==0.20",)
    assert entry("Horovod", "none") == ("horovod", "none")
    with pytest.raises(UsageError, match="needs Python"):
        entry("python=3.6", "none")


def test_zeros_at_the_end_of_a_pin_say_nothing():
    for key, line in (("1.1.0", "1.1"), ("1.1", "1.1.0"), ("1.1.*", "1.1"), ("1.0", "1")):
        asked = Resolved("", Environment(pip=[f"x=={line}"]))
        assert recipe(asked, {f"x=={key}": "y"}).requirements == ("y",)
    assert entry("X == 1.10.0", "y") == ("x==1.10", "y")
    assert take("x==1.1", table={"x==1.10": "y"}).lines == ("x==1.1",)


@pytest.mark.parametrize(
    ("torch", "vision", "audio"),
    [
        ("torch==2.13.0", "0.28", "2.13"),
        ("torch==2.0.1", "0.15", "2.0"),
        ("torch==1.13.1", "0.14", "0.13"),
        ("torch==1.6.*", "0.7", "0.6"),
        ("torch==1.2.0", "0.4", "0.2"),
        ("torch==1.3.1", "0.4", "0.3"),
    ],
)
def test_torch_and_what_is_built_for_it_are_one_choice(torch: str, vision: str, audio: str):
    asked = "torchvision==0.2; python_version > '3'", "torch==1.0", "torchaudio==0.2", "six"
    found = take(*asked, table={"torch==1.0": torch})
    assert found.lines == (
        f'torchvision=={vision}.*; python_version > "3"',
        torch,
        f"torchaudio=={audio}.*",
        "six",
    )
    assert any(f"(it fits {torch})" in note for note in found.notes)


def test_the_map_itself_counts_before_what_fits():
    table = {"torch==1.6.0": "torch==2.8.0", "torchvision==0.7.0": "torchvision==0.23.0"}
    assert take("torch==1.6.0", "torchvision==0.7.0", "torchaudio", table=table).lines == (
        "torch==2.8.0",
        "torchvision==0.23.0",
        "torchaudio",
    )
    assert take("torch==1.6.0", "torchvision==0.7.0").notes == ()
    open_end = take("torch==1.6.0", "torchvision==0.7.0", table={"torch==1.6.0": "torch>=2"})
    assert open_end.lines == ("torch>=2", "torchvision")


def test_a_conda_file_of_2020():
    pip = ["azureml-defaults", "torch==1.6.0", "torchvision==0.7.0", "horovod==0.19.5"]
    conda = {"dependencies": ["python=3.6.2", "pip", {"pip": pip}]}
    table = {"python=3.6.2": "3.11", "torch==1.6.*": "torch==2.8.0", "horovod": "none"}
    found = recipe(Resolved("", Environment(conda_file=conda)), table)
    assert found.python == "3.11"
    assert found.requirements == ("pip", "torch==2.8.0", "torchvision==0.23.*")
    assert len(found.notes) == 5


def test_options_and_addresses_stay():
    lines = ("--no-index", "https://x.org/azureml-1.whl", "azureml-core @ https://x.org/a.whl")
    assert take(*lines).lines == lines
