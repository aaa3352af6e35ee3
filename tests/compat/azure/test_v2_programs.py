"""Programs written for `azure.ai.ml`, unmodified, by `allranks python`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from allranks.compat.azure import v2
from allranks.compat.azure.designer import command_component
from allranks.compat.azure.tracking import mlflow_tracking_uri
from allranks.dsl import pipeline
from allranks.errors import UsageError
from tests.support import Allranks

SWEEP = """
from azure.ai.ml import MLClient, command
from azure.ai.ml.constants import ListViewType
from azure.ai.ml.sweep import Uniform
from azure.identity import DefaultAzureCredential

client = MLClient.from_config(credential=DefaultAzureCredential())
job = command(
    command="echo loss ${{inputs.lr}}; mkdir outputs; echo ${{inputs.lr}} > outputs/lr",
    inputs={"lr": 0.1}, environment="current", compute="cpu-cluster", properties={"team": "a"},
    description="tries rates",
)
job.metrics = {"loss": "loss (.*)"}
sweep = job(lr=Uniform(min_value=0.1, max_value=0.9)).sweep(
    compute="cpu-cluster", sampling_algorithm="random", primary_metric="loss", goal="Minimize"
)
sweep.set_limits(max_total_trials=2, max_concurrent_trials=2)
made = client.create_or_update(sweep)
print(made.properties)
client.jobs.stream(made.name)
done = client.jobs.get(name=made.name)
best = done.properties["best_child_run_id"]
assert done.status == "Completed" and best == done.best["job"], best
client.jobs.download(name=best, download_path="best")
children = client.jobs.list(parent_job_name=made.name)
assert [each.name for each in children] == [made.name + "_0", made.name + "_1"], children
assert made.name in [e.name for e in client.jobs.list(list_view_type=ListViewType.ACTIVE_ONLY)]
print(client.jobs.get(best).properties, client.jobs.create_or_update(job).description)
print("sweep", done.name)
"""


@pytest.mark.slow
def test_a_sweep_whose_best_trial_is_downloaded(allranks: Allranks, code: Path) -> None:
    (code / "config.json").write_text('{"workspace_name": "elsewhere"}')
    (code / "submit.py").write_text(SWEEP)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == "{'team': 'a'}"
    assert "{'team': 'a'} tries rates" in lines
    assert (code / "best" / "artifacts" / "outputs" / "lr").exists()
    query = ("--query", "properties.best_child_run_id", "-o", "tsv")
    name = lines[-1].removeprefix("sweep ")
    assert allranks("az", "ml", "job", "show", "-n", name, *query).stdout.startswith(f"{name}_")


ODD = """
import sys
from azure.ai.ml import MLClient, command
from azure.ai.ml.entities import Environment
from azureml.core import Workspace
client = MLClient.from_config(None)
client.create_or_update(command(command="true", environment="current", instance_type="odd_1"))
image = Environment(image="python:%d.%d" % sys.version_info[:2])
made = client.jobs.create_or_update(command(command="true", environment=image))
client.jobs.stream(made.name)
print(Workspace.from_config().get_mlflow_tracking_uri())
"""


@pytest.mark.medium
def test_what_has_no_effect_is_said(shared: Allranks, code: Path) -> None:
    (code / "odd.py").write_text(ODD)
    done = shared("python", "odd.py")
    assert done.returncode == 0, done.stderr
    assert "note: the instance type odd_1 is not known" in done.stderr
    assert done.stderr.count("the image python:3.") == 1, done.stderr
    assert done.stdout.endswith("/mlflow\n")


VALIDATED = """
from azure.ai.ml import MLClient, command
client = MLClient.from_config(None)
good = client.jobs.validate(command(command="echo hello", environment="current"))
bad = client.jobs.validate(command(command="echo hello", environment="azureml:nothere:1"))
print(good.passed, good.error_messages, bad.passed, sorted(bad.error_messages))
print(bad.error_messages, len(client.jobs.list()))
"""


@pytest.mark.medium
def test_a_job_is_validated_without_being_submitted(allranks: Allranks, code: Path) -> None:
    (code / "validated.py").write_text(VALIDATED)
    done = allranks("python", "validated.py")
    assert done.returncode == 0, done.stderr
    first, second = done.stdout.splitlines()
    assert first == "True {} False ['environment']"
    assert "nothere" in second
    assert second.endswith(" 0")


MISSING = """
from azure.ai.ml import Input, MLClient
from azure.ai.ml.entities import Data
from azure.core.exceptions import ResourceNotFoundError
client = MLClient.from_config(None)
petals = Data(name="petals", version="1", path="data.csv", type="uri_file")
made = client.data.create_or_update(petals)
print(made.id, client.environments.get("allranks-sklearn-1", label="latest").id)
tried = [
    (client.data, "petals", "7"), (client.data, "nothere", "1"), (client.models, "nothere", "1"),
    (client.environments, "allranks-sklearn-1", "77"), (client.components, "nothere", "1"),
    (client.environments, "nothere", "1"),
]
for where, name, version in tried:
    try:
        where.get(name=name, version=version)
    except ResourceNotFoundError as error:
        print(error.message)
for wrong in ({"mode": "nope"}, {"mod": "download"}):
    try:
        Input(type="uri_file", path="x", **wrong)
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.mark.medium
def test_what_is_not_there_is_not_found(shared: Allranks, code: Path) -> None:
    (code / "data.csv").write_text("1,2")
    (code / "missing.py").write_text(MISSING)
    done = shared("python", "missing.py")
    assert done.returncode == 0, done.stderr
    first, *rest = done.stdout.splitlines()
    assert first.startswith("azureml:petals:1 azureml:allranks-sklearn-1:")
    assert [each.endswith(" not found") for each in rest[:-2]] == [True] * 6
    assert rest[-2:] == ["SpecError", "UsageError"]


PREPARE = """
from pathlib import Path
from mldesigner import Input, Output, command_component

@command_component(name="prepare", version="1", display_name="Prepare",
                   environment=dict(conda_file=Path(__file__).parent / "conda.yaml", name="e"))
def prepare(data: Input(type="uri_file"), out: Output(type="uri_folder"), times: int = 2,
            rate: Input(type="number") = 0.5, loud=True, word: str = None):
    \"\"\"Repeats a file.\"\"\"
    text = Path(data).read_text() * times
    (Path(out) / "text").write_text("%s %r %r %r" % (text, rate, loud, word))

@command_component
def count(found: Input(type="uri_folder")) -> int:
    return len((Path(found) / "text").read_text().split()[0])

@command_component
def named(number: int) -> str:
    return "number %d" % (number + 1)

@command_component
def show(found: Input, times: Input(type="integer"), word: str = "none"):
    print("shown", (Path(found) / "text").read_text(), repr(times), word)
"""
DESIGNED = """
from azure.ai.ml import Input, MLClient, load_component
from azure.ai.ml.dsl import pipeline
from steps import count, named, prepare, show
from steps.prepare import prepare as itself
client = MLClient.from_config(None)

@pipeline(default_compute="local")
def both(data, times=3):
    first = load_component(source=prepare)(data=data, times=times)
    first.environment = "current"
    counted = count(first.outputs.out)
    word = named(counted.outputs.output).outputs.output
    show(first.outputs.out, times=counted.outputs.output, word=word)

job = client.jobs.create_or_update(both(Input(type="uri_file", path="a b.txt"), times=4))
client.jobs.stream(job.name)
print(prepare.name, prepare.__doc__, client.components.create_or_update(show).version)
"""


@pytest.mark.slow
def test_functions_of_mldesigner_are_steps(allranks: Allranks, code: Path) -> None:
    (code / "steps").mkdir()
    (code / "steps" / "__init__.py").write_text(
        "from .prepare import count, named, prepare, show\n"
    )
    (code / "steps" / "prepare.py").write_text(PREPARE)
    (code / "steps" / "conda.yaml").write_text("dependencies: [python=3.11, pip]")
    (code / "a b.txt").write_text("x")
    (code / "submit.py").write_text(DESIGNED)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr + done.stdout
    assert "shown xxxx 0.5 True None 4 number 5" in done.stdout
    assert done.stdout.splitlines()[-1] == "prepare Repeats a file. 1"


@command_component
def joined(left: str, out: v2.Output(type="uri_folder"), right: int = 2): ...  # type: ignore


def test_positional_inputs_are_bound_as_python_does() -> None:
    wrong: tuple[tuple[tuple[Any, ...], dict[str, Any], str], ...] = (
        (("a", 1, 2), {}, "too many positional arguments"),
        (("a",), {"left": "b"}, "multiple values for argument 'left'"),
        ((), {"lef": "b"}, "unexpected keyword argument 'lef'"),
    )

    @pipeline
    def both() -> None:
        joined("a", 3)
        for values, inputs, message in wrong:
            with pytest.raises(UsageError, match=message) as caught:
                joined(*values, **inputs)
            assert caught.value.hint == "its inputs: left, right"

    (step,) = both().to_dict()["jobs"].values()
    assert step["inputs"] == {"left": "a", "right": 3}


def test_mlflow_gets_the_token_of_the_server_in_use(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("ALLRANKS_SERVER", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "to be restored")
    monkeypatch.delenv("MLFLOW_TRACKING_TOKEN")
    for token in ("first", "second"):
        monkeypatch.setenv("ALLRANKS_TOKEN", token)
        assert mlflow_tracking_uri() == "http://127.0.0.1:9/mlflow"
        assert os.environ["MLFLOW_TRACKING_TOKEN"] == token
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "the user's")
    mlflow_tracking_uri()
    assert os.environ["MLFLOW_TRACKING_TOKEN"] == "the user's"
