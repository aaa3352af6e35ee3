"""Jobs built in Python, written and read again: no server is asked."""

from __future__ import annotations

import copy
import io
import os
import pickle
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allranks
from allranks import (
    AllranksError,
    AmlTokenConfiguration,
    BuildContext,
    CommandJob,
    DeepSpeedDistribution,
    Environment,
    HorovodDistribution,
    Input,
    JaxDistribution,
    Limits,
    ManagedIdentityConfiguration,
    MpiDistribution,
    Output,
    PyTorchDistribution,
    QueueSettings,
    RayDistribution,
    Resources,
    Retry,
    SpecError,
    SshJobService,
    TensorBoardJobService,
    TensorFlowDistribution,
    UserIdentityConfiguration,
    command,
    load_job,
)
from allranks.sdk.client import Job

EVERYTHING = command(
    command="python train.py ${{inputs.data}} ${{outputs.model}}",
    code=Path("src"),
    name="run-1",
    tags={"a": "1.10"},
    environment=Environment(image="i", conda_file={"dependencies": ["pip"]}, pip=["torch"]),
    environment_variables={"A": 1, "B": True},
    distribution=PyTorchDistribution(process_count_per_instance=2),
    inputs={"data": Input(path=Path("data"), mode="download"), "lr": 0.1, "n": 3, "f": True},
    outputs={"model": Output(type="uri_file"), "rest": {}, "none": None},
    resources=Resources(instance_count=2, locations=["west"], properties={"local": {"cpus": 2}}),
    limits=Limits(timeout=60),
    queue_settings=QueueSettings(job_tier="spot"),
    services={"s": SshJobService(port=22), "t": {"type": "TensorBoard", "log_dir": "l"}},
    identity=UserIdentityConfiguration(),
    metrics={"loss": "loss=([0-9.]+)"},
    warm=["torch"],
    retry=Retry(max_attempts=2, on=["hang"]),
)


def test_everything_comes_back(tmp_path: Path) -> None:
    text = EVERYTHING.to_yaml(tmp_path / "job.yml")
    assert (tmp_path / "job.yml").read_text() == text
    for source in (text, tmp_path / "job.yml", str(tmp_path / "job.yml"), io.StringIO(text)):
        assert load_job(source) == EVERYTHING
    with (tmp_path / "job.yml").open() as file:
        again = load_job(file)
    assert again == EVERYTHING
    assert again.base == str(tmp_path)
    assert isinstance(again.services["t"], TensorBoardJobService)
    assert [type(again.inputs[n]) for n in ("lr", "n", "f")] == [float, int, bool]


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(AllranksError, match="cannot write the job: is a directory") as caught:
        EVERYTHING.to_yaml(tmp_path)
    assert caught.value.hint
    assert caught.value.where == str(tmp_path)


def test_copies_are_equal() -> None:
    assert copy.deepcopy(EVERYTHING) == pickle.loads(pickle.dumps(EVERYTHING)) == EVERYTHING
    assert EVERYTHING.based("/a").base == "/a"
    assert EVERYTHING.base is None


def test_jobs_that_differ_are_not_equal() -> None:
    assert command(command="x") != command(command="y")
    assert command(command="x", inputs={"a": 1}) != command(command="x", inputs={"a": 2})
    assert command(command="x") != "x"


def test_short_words_win_over_their_sections() -> None:
    job = command(
        command="x",
        resources=Resources(instance_count=2, shm_size="1g"),
        instance_count=3,
        gpus_per_instance=1,
        limits={"timeout": 5},
        timeout=6,
        job_tier="Premium",
        priority="high",
    )
    assert job.resources == Resources(instance_count=3, shm_size="1g", gpus_per_instance=1)
    assert job.limits.timeout == 6
    assert job.queue_settings == QueueSettings(job_tier="premium", priority="high")


def test_jobs_can_be_copied_and_sent_to_other_processes() -> None:
    made = Job({"name": "a", "status": "Queued"})
    for other in (copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert (other.name, other.status) == ("a", "Queued")
    with pytest.raises(AttributeError, match="a job has no attribute 'nosuch'"):
        _ = made.nosuch


def test_outputs_are_attributes() -> None:
    assert EVERYTHING.outputs.model == EVERYTHING.outputs["model"] == Output(type="uri_file")
    with pytest.raises(
        AttributeError, match="output 'modle' not found; the outputs are: model, rest, none"
    ):
        EVERYTHING.outputs.modle  # noqa: B018


def test_an_output_is_an_input() -> None:
    output = Output(type="mltable", path="azureml://jobs/a/outputs/o/paths/")
    expected = Input(type="mltable", path="azureml://jobs/a/outputs/o/paths/")
    job = command(command="x", inputs={"a": output, "b": Input(path=output, type="mltable")})
    assert job.inputs == {"a": expected, "b": expected}


def test_an_output_without_a_place_is_no_input() -> None:
    with pytest.raises(SpecError, match="is not submitted") as caught:
        command(command="x", inputs={"a": EVERYTHING.outputs.model})
    assert caught.value.where == "inputs.a"
    assert "job.outputs" in str(caught.value.hint)


def test_what_is_wrong_is_told_by_key() -> None:
    with pytest.raises(SpecError) as caught:
        command(command="x", resorces={}, retry={"on": ["hangs"]}, job_tier="free")
    told = {problem.where: problem.hint for problem in caught.value.problems}
    assert told["resorces"] == "did you mean `resources`?"
    assert set(told) == {"resorces", "retry.on.0", "queue_settings.job_tier"}


def test_a_job_may_be_changed_before_it_is_submitted() -> None:
    job = command(command="x")
    job.command = "python train.py"
    job.distribution = PyTorchDistribution(process_count_per_instance=4)
    job.compute = "gpu"
    job.environment_variables = {"A": 1}  # type: ignore[dict-item]
    job.environment_variables["B"] = "2"
    job.inputs["lr"] = 0.1
    job.resources.instance_count = 3
    job.distribution.process_count_per_instance = 2
    assert job == command(
        command="python train.py",
        distribution=PyTorchDistribution(process_count_per_instance=2),
        compute="gpu",
        environment_variables={"A": "1", "B": "2"},
        inputs={"lr": 0.1},
        instance_count=3,
    )
    job.distribution = {"type": "Mpi"}  # type: ignore[assignment]
    assert job.distribution == MpiDistribution()
    job.compute = None
    assert "compute" not in job.to_dict()


@pytest.mark.parametrize(
    ("part", "name", "value", "hint"),
    [
        (command(command="x"), "comand", "y", "did you mean `command`?"),
        (command(command="x"), "command", "", "write `command: …`"),
        (command(command="x"), "command", ["a", {}], "convert it with str(…)"),
        (command(command="x"), "environment", "c.yml", "Environment(conda_file='c.yml')"),
        (command(command="x"), "environment", "R.TXT", "Environment(requirements='R.TXT')"),
        (Resources(), "instance_count", "many", "a whole number"),
        (Input(path="x"), "mode", "eval_mount", "use `ro_mount` or `download`"),
        (PyTorchDistribution(), "process_count_per_instance", 0, "such a number"),
    ],
)
def test_a_wrong_value_is_refused_and_nothing_changes(
    part: Any, name: str, value: object, hint: str
) -> None:
    before = part.model_copy()
    with pytest.raises(SpecError) as caught:
        setattr(part, name, value)
    assert hint in str(caught.value.hint)
    assert str(caught.value.where).partition(".")[0] == name
    assert part == before


def test_a_part_of_its_own_is_refused_in_our_words() -> None:
    with pytest.raises(SpecError, match="`instance_cout` is not a key") as caught:
        Resources(instance_cout=2)  # type: ignore[call-arg]
    assert caught.value.hint == "did you mean `instance_count`?"


def test_jobs_do_not_share_their_parts() -> None:
    given = Resources(instance_count=2)
    one, other = command(command="x", resources=given), command(command="x", resources=given)
    one.resources.instance_count = 3
    assert (other.resources.instance_count, given.instance_count) == (2, 2)
    one.limits.timeout = 5
    assert command(command="x").limits == Limits()


def test_a_command_may_be_a_list() -> None:
    words = ["python", Path("my train.py"), "--lr", "${{inputs.lr}}", "--epochs", 3, "a'b"]
    job = command(command=words, inputs={"lr": 0.1})
    assert job.command == "python 'my train.py' --lr '${{inputs.lr}}' --epochs 3 'a'\"'\"'b'"
    job.command = ["echo", "$HOME"]  # type: ignore[assignment]
    assert job.command == "echo '$HOME'"


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("AzureML-acpt-pytorch-1.13@latest", "azureml:AzureML-acpt-pytorch-1.13@latest"),
        ("allranks-sklearn-1", "azureml:allranks-sklearn-1"),
        ("e:1", "azureml:e:1"),
        ("azureml:e:1", "azureml:e:1"),
        ("current", "current"),
        ("azureml://registries/R/environments/N/labels/L",) * 2,
    ],
)
def test_an_environment_by_its_bare_name(given: str, kept: str) -> None:
    job = command(command="x", environment=given)
    assert job.environment == kept
    job.environment = "other"
    job.environment = given
    assert job.environment == kept


def test_mappings_of_any_kind() -> None:
    job = command(
        command="x",
        resources=MappingProxyType({"instance_count": 2}),
        inputs=MappingProxyType({"a": MappingProxyType({"path": "p"})}),
    )
    assert (job.resources.instance_count, job.inputs["a"]) == (2, Input(path="p"))


def test_a_file_named_like_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a\nb.yml").write_text("command: hello")
    assert load_job("a\nb.yml").command == "hello"
    with pytest.raises(SpecError) as caught:
        load_job("command: x\ncomand: y\n")
    assert (caught.value.line, caught.value.where) == (2, "comand")


def test_every_name_is_there() -> None:
    for name in allranks.__all__:
        assert getattr(allranks, name).__name__ if name != "__version__" else allranks.__version__
    source = Path(str(allranks.__file__)).read_text()
    for name in set(allranks.__all__) - {"__version__"}:
        assert f" import {name} as {name}\n" in source, "a type checker does not see it"


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True)
words = st.sampled_from(["1e-3", "on", "null", "~", "2024-01-01", "a: b", "# x", "'", '"', "- a"])
texts = words | st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\0$"), min_size=1, max_size=8
)
images = st.from_regex(r"[a-z0-9][a-z./:0-9]{0,8}", fullmatch=True)
counts = st.integers(1, 9)
literals = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
kinds = st.sampled_from(["uri_file", "uri_folder", "mltable", "mlflow_model", "custom_model"])
per_node = st.sampled_from(
    (
        PyTorchDistribution,
        MpiDistribution,
        DeepSpeedDistribution,
        HorovodDistribution,
        JaxDistribution,
    )
)
jobs: st.SearchStrategy[CommandJob] = st.fixed_dictionaries(
    {"command": texts},
    optional={
        "code": texts,
        "name": st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,5}", fullmatch=True),
        "display_name": texts,
        "tags": st.dictionaries(texts, texts, max_size=2),
        "environment": st.just("current")
        | st.builds(Environment, image=images, pip=st.lists(texts, max_size=2))
        | st.builds(Environment, build=st.builds(BuildContext, path=texts)),
        "environment_variables": st.dictionaries(names, literals, max_size=2),
        "distribution": st.builds(RayDistribution, port=counts)
        | st.builds(TensorFlowDistribution, parameter_server_count=st.integers(0, 3))
        | st.builds(lambda made, n: made(process_count_per_instance=n), per_node, counts),
        "inputs": st.dictionaries(
            names,
            literals
            | st.builds(
                Input, path=texts, type=kinds, mode=st.sampled_from(["ro_mount", "download"])
            ),
            max_size=3,
        ),
        "outputs": st.dictionaries(
            names, st.none() | st.builds(Output, path=st.none() | texts, type=kinds), max_size=2
        ),
        "resources": st.builds(
            Resources, instance_count=counts, locations=st.lists(texts, max_size=2)
        ),
        "timeout": st.floats(1, 1e9),
        "services": st.dictionaries(texts, st.builds(SshJobService, port=counts), max_size=1),
        "identity": st.builds(ManagedIdentityConfiguration, client_id=st.none() | texts)
        | st.builds(AmlTokenConfiguration),
        "retry": st.builds(Retry, on=st.lists(st.sampled_from(["hang", "user"]), max_size=2)),
        "warm": st.lists(st.sampled_from(["torch", "a.b"]), max_size=2),
    },
).map(lambda given: command(**given))


@settings(max_examples=60)
@given(job=jobs)
@pytest.mark.medium
def test_every_job_comes_back(job: CommandJob, tmp_path_factory: Any) -> None:
    text = job.to_yaml()
    again = load_job(text)
    assert again == job
    assert again.to_yaml() == text
    assert [type(v) for v in again.inputs.values()] == [type(v) for v in job.inputs.values()]
    path = tmp_path_factory.getbasetemp() / f"round-{os.getpid()}.yml"
    job.to_yaml(path)
    assert load_job(path) == job
