"""What an environment means on a compute, and what is to be made for it."""

import pytest

from allranks.core.environments import curated
from allranks.core.environments.activation import activated
from allranks.core.environments.recipe import (
    Compute,
    Resolved,
    Table,
    entry,
    looked_up,
    recipe,
    resolve,
)
from allranks.core.packing import pack, unpack
from allranks.core.plan import Recipe, Task
from allranks.errors import Problem, SpecError, UsageError
from allranks.spec.fields.azureml_references import Asset
from allranks.spec.job import parse
from allranks.spec.job_parts import Environment

KNOWN = {"digits:2": Environment(pip=["scikit-learn"]), "pod:1": Environment(image="a/b")}


def find(asset: Asset) -> Resolved:
    name = f"{asset.name}:{asset.version or 2}"
    if name not in KNOWN:
        raise SpecError(Problem(f"environment {asset} not found", "environment"))
    return Resolved(name, KNOWN[name])


def means(asked: object, *, containers: bool = False, table: Table | None = None) -> Resolved:
    return resolve(asked, Compute("c", containers), table or {}, find)


def made(environment: Environment, table: Table | None = None) -> Recipe:
    return recipe(Resolved("", environment), table or {})


@pytest.mark.parametrize("asked", [None, "current", "azureml:current@latest"])
def test_the_python_in_front(asked: object):
    assert means(asked) == Resolved()


def test_one_that_has_a_name():
    assert means("azureml:digits:2") == Resolved("digits:2", KNOWN["digits:2"])
    assert means("azureml:digits@latest").name == "digits:2"
    with pytest.raises(SpecError, match="environment nope:1 not found"):
        means("azureml:nope:1")


def test_a_name_of_azures_may_stand_for_another():
    far = "azureml://registries/azureml/environments/AzureML-pytorch-1.10/versions/3"
    found = means(far, table={"AzureML-*pytorch*": "digits:2"})
    assert found.name == "digits:2"
    assert found.notes == (
        "the environment AzureML-pytorch-1.10:3 does not exist here; using digits:2 instead",
    )
    assert found.asked == "AzureML-pytorch-1.10:3"


def test_an_image_is_itself_where_containers_run():
    assert means(Environment(image="a/b"), containers=True).environment == KNOWN["pod:1"]
    assert means("azureml:pod:1", containers=True) == Resolved("pod:1", KNOWN["pod:1"])


def test_where_they_do_not_another_stands_for_it():
    table = {"a/*": "digits:2", "c:1": "current"}
    found = means(Environment(image="a/b"), table=table)
    assert (found.name, found.environment) == ("digits:2", KNOWN["digits:2"])
    assert "a/b is not used" in found.notes[0]
    assert found.asked == "a/b"
    assert means("azureml:pod:1", table=table)[::3] == ("digits:2", "pod:1")
    assert means(Environment(image="c:1"), table=table).environment is None
    with pytest.raises(SpecError, match="no environment is mapped to the image d"):
        means(Environment(image="d"), table=table)


def test_packages_on_an_image_are_an_environment_without_it_where_no_containers_run():
    found = means(Environment(image="a/b", pip=["x"]))
    assert recipe(found, {}).requirements == ("x",)
    assert "a/b is not used" in found.notes[0]


def test_packages_on_an_image_are_both_where_containers_run():
    both = Environment(image="a/b", conda_file={"dependencies": ["python=3.11", "mkl"]}, pip=["x"])
    found = means(both, containers=True)
    assert (found.environment, found.notes) == (both, ())
    wanted = recipe(found, {})
    assert (wanted.python, wanted.requirements) == ("3.11", ("x",))
    assert any("mkl" in note for note in wanted.notes)


def test_a_dockerfile_without_containers_may_build_what_its_environment_may():
    inside = {"image": "python:3.12", "pip": ["old==1"], "left_out": ["CMD", "USER"]}
    build = {"path": ".", "without_containers": inside}
    made = Environment(build=build, allow_builds=True)
    resolved = resolve(made, Compute(), curated.TABLE, find)
    assert recipe(resolved, {}).allow_builds
    assert ", and CMD, USER of the Dockerfile are not used; installing" in resolved.notes[-1]


def test_an_image_that_is_to_be_made_needs_containers():
    made = Environment(build={"path": "."})
    with pytest.raises(SpecError, match="runs no containers and builds no images") as caught:
        means(made)
    assert "--container podman" in caught.value.problems[0].hint
    assert means(made, containers=True).environment == made
    both = made.model_copy(update={"pip": ("x",)})
    assert means(both, containers=True).environment == both
    with pytest.raises(SpecError, match="runs no containers and builds no images"):
        means(both)


def test_a_recipe_of_all_ways_to_write_one():
    dependencies = ["python=3.10", "pytorch=2.1", "mkl", {"pip": ["six"]}]
    whole = Environment(
        conda_file={"dependencies": dependencies, "variables": {"A": 1}},
        pip=["numpy>=1", "--pre", "x @ https://x/x.whl", ""],
        constraints=["six<2"],
        torch_backend="cpu",
    )
    found = made(whole)
    assert found == Recipe(
        "3.10",
        ("torch==2.1.*", "six", "numpy>=1", "--pre", "x @ https://x/x.whl"),
        ("six<2",),
        "cpu",
        {"A": "1"},
        ("left out: mkl (wheels include it)",),
    )
    task = Task("a", "e", "true", recipe=found)
    assert unpack(Task, pack(task)) == task


@pytest.mark.parametrize("python", ["3.6", "python=3.6", "python3.6", "=3.6"])
def test_the_table_takes_another_python(python: str):
    found = made(Environment(python=python, pip=["a"]), {"python=3.6": "3.11"})
    assert found.python == "3.11"
    assert found.notes == ("python 3.6 was requested, using 3.11",)


def test_the_table_takes_other_versions():
    table = {"torch==1.6.*": "torch==2.13.0", "nvidia-apex": "numpy"}
    lines = ["Torch == 1.6.0 ; python_version > '3'", "torch==2.0", "nvidia_apex"]
    found = made(Environment(pip=lines), table)
    assert found.requirements == ('torch==2.13.0; python_version > "3"', "torch==2.0", "numpy")
    assert len(found.notes) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("numpy>==1", "is not a requirement"),
        ("-e .", "an editable folder"),
        ("--editable=.", "an editable folder"),
        ("-r other.txt", "is not sent with the job"),
        ("--constraint c.txt", "is not sent with the job"),
        (".", "an editable folder"),
        ("./pkg[dev]", "an editable folder"),
        ("--extra-index https://x/simple", "'--extra-index' is no option"),
        ("six==1 --no-deps", "'--no-deps' cannot be beside"),
    ],
)
def test_lines_that_cannot_be_had(line: str, said: str):
    with pytest.raises(SpecError, match=said) as caught:
        made(Environment(pip=["a", line]))
    assert [(each.where, bool(each.hint)) for each in caught.value.problems] == [
        ("environment.pip.1", True)
    ]


def test_what_is_taken_is_looked_up_however_it_was_written():
    rows = [("Pillow >= 6, <7", "pillow"), ("ruamel_yaml==0.17", "ruamel.yaml==0.18")]
    table = dict(entry(*row) for row in rows)
    lines = ["pillow<7,>=6", "Ruamel.YAML==0.17", "tensorflow[and-cuda]==2.4; python_version>'3'"]
    table |= dict([entry("tensorflow==2.*", "tensorflow==2.21.0")])
    assert made(Environment(pip=lines), table).requirements == (
        "pillow",
        "ruamel.yaml==0.18",
        'tensorflow[and-cuda]==2.21.0; python_version > "3"',
    )
    assert entry("python=3.6", "python=3.11") == ("python=3.6", "3.11")
    assert entry("a/b:*", "digits") == ("a/b:*", "digits")
    for asked, taken in (("", "x"), ("x==1", ""), ("x==1", ">=bad")):
        with pytest.raises(UsageError):
            entry(asked, taken)


def test_an_image_does_not_stand_for_an_image():
    with pytest.raises(
        SpecError, match="pod:1, the replacement for the image a/b, is also an image"
    ):
        means(Environment(image="a/b"), table={"a/*": "pod:1"})


@pytest.mark.parametrize(
    ("image", "python"),
    [
        ("python:3.11.6", "3.11"),
        ("library/python:3.12", "3.12"),
        ("docker.io/python:3.12-slim", "3.12"),
        ("docker.io/library/python:3.10-bookworm", "3.10"),
        ("python", None),
        ("library/python:latest", None),
        ("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:20240101.v1", None),
        ("mcr.microsoft.com/azureml/minimal-ubuntu22.04-py39-cpu-inference", None),
    ],
)
def test_images_of_plain_python_are_that_python(image, python):
    found = means(Environment(image=image), table=curated.TABLE)
    assert (found.environment and found.environment.python) == python
    assert image in found.notes[0]
    assert found.asked == image


def test_an_image_may_stand_for_a_python():
    found = means(Environment(image="corp/base:7"), table={"corp/*": "python=3.12"})
    assert found.environment.python == "3.12"


@pytest.mark.parametrize("to", ["current", "digits"])
def test_a_star_is_any_image_and_environment_and_no_python_or_package(to):
    table = {"*": to}
    asked = Environment(python="3.6", pip=("numpy==1.2",))
    found = recipe(means(asked, table=table), table)
    assert (found.python, found.requirements) == ("3.6", ("numpy==1.2",))
    for other in ("azureml:E@latest", "azureml:E:3", Environment(image="a/b:1")):
        found = means(other, table=table)
        assert (found.environment is None) == (to == "current")
        assert "instead" in found.notes[0]


@pytest.mark.parametrize("name", ["AzureML-pytorch-1.10", "python:3.12-slim", "mine"])
def test_a_star_is_what_nothing_else_matches(name):
    table = {"*": "digits:7", "mi*": "digits:2", **dict.fromkeys(curated.TABLE, "digits:2")}
    asked = Environment(image=name) if ":" in name else f"azureml:{name}@latest"
    assert means(asked, table=table).name == "digits:2"


@pytest.mark.parametrize("version", ["2", "2.7"])
def test_python_2_is_refused_unless_the_map_has_a_python_3_for_it(version):
    table = dict(curated.TABLE)
    tag = means(Environment(image=f"python:{version}-slim"), table=table)
    for asked in (tag, Resolved("", Environment(python=version))):
        with pytest.raises(SpecError, match=f"Python {version} is not supported") as caught:
            recipe(asked, table)
        hint = f"allranks environment map python={version} 3.12"
        assert hint in caught.value.problems[0].hint
        assert recipe(asked, {**table, f"python={version}": "3.12"}).python == "3.12"


def test_capital_letters_count_for_nothing_in_the_names_of_others():
    for name in ("AzureML-PyTorch-1.6-GPU", "azureml-pytorch-1.6-gpu:40", "ACPT-pytorch-2.8"):
        table = dict.fromkeys(curated.TABLE, "digits:2")
        assert means(f"azureml:{name}", table=table).name == "digits:2"


def test_a_requirements_file_that_did_not_travel():
    with pytest.raises(SpecError, match="the content of the file is missing"):
        made(Environment(requirements="/x/r.txt"))


def test_a_conda_file_that_did_not_travel():
    with pytest.raises(SpecError, match="the content of the file is missing"):
        made(Environment(conda_file="conda.yml"))


def test_curated_ones_can_be_made_and_the_table_leads_to_them():
    for versions in curated.ENVIRONMENTS.values():
        for spec in versions.values():
            assert recipe(Resolved("", Environment.model_validate(spec)), {}).requirements
    assert set(curated.TABLE.values()) <= {*curated.ENVIRONMENTS, curated.PYTHON}
    assert all(name.startswith(curated.PREFIX) for name in curated.ENVIRONMENTS)


def test_activation_leaves_nothing_of_what_was_active():
    base = {
        "PATH": "/old/bin:/conda/bin:/usr/bin",
        "VIRTUAL_ENV": "/old",
        "CONDA_PREFIX": "/conda",
        "CONDA_SHLVL": "1",
        "PYTHONPATH": "/lib",
        "HOME": "/root",
        "LD_LIBRARY_PATH": "/cuda",
    }
    assert activated(base, "/new", {"A": "b"}) == {
        "HOME": "/root",
        "LD_LIBRARY_PATH": "/cuda",
        "VIRTUAL_ENV": "/new",
        "PATH": "/new/bin:/usr/bin",
        "A": "b",
    }


def test_what_is_taken_back_has_the_name_it_was_given():
    for asked in ("Pillow>=6, <7", "x==1", "a/b:*", "six", "python=3.6", "torch==1.6.*"):
        assert looked_up(asked) == entry(asked, "y==2")[0]


@pytest.mark.parametrize(
    ("asked", "instead"),
    [
        ("AzureML-sklearn-1.5", "allranks-sklearn-1.5"),
        ("AzureML-sklearn-0.24-ubuntu18.04-py37-cpu:1", "allranks-sklearn-1.1"),
        ("azureml:sklearn-1.1@latest", "allranks-sklearn-1.1"),
        ("azureml:sklearn-1.5@latest", "allranks-sklearn-1.5"),
        (
            "azureml://registries/azureml/environments/lightgbm-3.3/versions/50",
            "allranks-sklearn-1.5",
        ),
        ("azureml:AzureML-xgboost-0.9:1", "allranks-sklearn-1.5"),
        ("AzureML-responsibleai-0.20-ubuntu20.04-py38-cpu", "allranks-responsibleai-0.36"),
        ("AzureML-ACPT-pytorch-1.13-py38-cuda11.7-gpu:9", "allranks-acpt-pytorch-2.13"),
        ("azureml:acpt-pytorch-2.2-cuda12.1@latest", "allranks-acpt-pytorch-2.13"),
        ("AzureML-tensorflow-2.16-cuda12", "allranks-tensorflow-2.16"),
        ("AzureML-tensorflow-2.4-ubuntu18.04-py37-cuda11-gpu:9", "allranks-tensorflow-2.15"),
        ("AzureML-minimal-ubuntu20.04-py38-cpu-inference", ""),
    ],
)
def test_curated_environments_of_azure(asked: str, instead: str):
    spec = parse({"command": "true", "environment": asked})
    found = resolve(spec.environment, Compute("c"), curated.TABLE, known_curated)
    assert found.name == instead
    assert "does not exist here" in found.notes[0]


@pytest.mark.parametrize(
    ("image", "instead", "python"),
    [
        ("mcr.microsoft.com/azureml/curated/acpt-pytorch-2.2-cuda12.1:latest", "pytorch", ""),
        ("mcr.microsoft.com/azureml/curated/responsibleai-ubuntu20.04-py38-cpu", "responsible", ""),
        ("mcr.microsoft.com/azureml/openmpi4.1.0-ubuntu22.04:latest", "", ""),
        ("library/python:latest", "", ""),
        ("docker.io/python", "", ""),
        ("python:3.12-slim", "plain Python 3.12", "3.12"),
        ("docker.io/library/python:3.11.6", "plain Python 3.11", "3.11"),
        ("continuumio/miniconda3", "", ""),
        ("ubuntu:22.04", "", ""),
        ("pytorch/pytorch", "pytorch", ""),
        ("tensorflow/tensorflow:2.11.0-gpu", "tensorflow-2.15", ""),
        ("tensorflow/tensorflow:2.16.1", "tensorflow-2.21", ""),
    ],
)
def test_images_and_what_stands_for_them(image: str, instead: str, python: str):
    found = resolve(Environment(image=image), Compute("c"), curated.TABLE, known_curated)
    assert instead in found.name
    if not instead or python:
        assert (found.environment.python if found.environment else "") == python
    assert f"the image {image} is not used" in found.notes[0]


def known_curated(asset: Asset) -> Resolved:
    if asset.name not in curated.ENVIRONMENTS:
        raise SpecError(Problem(f"environment {asset} not found", "environment"))
    return Resolved(asset.name, Environment(pip=["x"]))


def test_no_package_is_taken_for_an_environment():
    names = [
        *("pytorch-lightning", "xgboost-ray", "responsibleai", "scikit-learn", "sklearn-crfsuite"),
        *("lightgbm", "tensorflow-datasets", "pytorch-ignite"),
    ]
    pip = [each for name in names for each in (name, f"{name}==9.0")]
    assert recipe(Resolved("", Environment(pip=pip)), curated.TABLE).requirements == (*pip,)


@pytest.mark.parametrize(
    ("name", "environment", "text"),
    [
        # Which one that is depends on the Python.
        ("AzureML-sklearn-0.24-ubuntu18.04-py37-cpu", "allranks-sklearn-1.1", " for 0.24"),
        ("AzureML-sklearn-1.5", "allranks-sklearn-1", "pandas 3 for 1"),
        ("acpt-pytorch-1.13-cuda11.7", "allranks-acpt-pytorch-2.13", "torch 2.13 for 1.13"),
        (
            "AzureML-pytorch-1.10-ubuntu18.04",
            "allranks-pytorch-2.13",
            "torch 2.13 for 1.10, numpy 2 for 1; without horovod",
        ),
        ("pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime", "allranks-pytorch-2.13", ""),
        ("AzureML-tensorflow-2.4-ubuntu18.04", "allranks-tensorflow-2.15", "horovod"),
        (
            "tensorflow-2.16-cuda12",
            "allranks-tensorflow-2.16",
            "without horovod, tensorflow-datasets",
        ),
        ("nvcr.io/nvidia/tensorflow:23.05-tf2-py3", "allranks-tensorflow-2.21", ""),
    ],
)
def test_the_difference_between_a_name_and_what_stands_for_it(name, environment, text):
    definition = [*curated.ENVIRONMENTS[environment].values()][-1]
    difference = curated.difference(name, definition["pip"])
    assert text in difference
    assert bool(text) == bool(difference)
