"""What becomes of configurations of Azure ML's first SDK: the keys of job files. No server."""

from __future__ import annotations

import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from allranks.compat.azure import v2
from allranks.compat.azure.v1.arguments import Bound, command_of, definition
from allranks.compat.azure.v1.data.datasets import FileDataset
from allranks.compat.azure.v1.data.datastore import DataReference, Datastore
from allranks.compat.azure.v1.data.output import OutputFileDatasetConfig
from allranks.compat.azure.v1.environment import CondaDependencies, Environment
from allranks.compat.azure.v1.estimators import ParameterServer, PyTorch, TensorFlow
from allranks.compat.azure.v1.exceptions import UserErrorException
from allranks.compat.azure.v1.hyperdrive import (
    BanditPolicy,
    BayesianParameterSampling,
    HyperDriveConfig,
    RandomParameterSampling,
    choice,
    loguniform,
)
from allranks.compat.azure.v1.pipeline import CommandStep, Pipeline, PipelineData, PythonScriptStep
from allranks.compat.azure.v1.run_config import (
    DockerConfiguration,
    MpiConfiguration,
    PyTorchConfiguration,
    RunConfiguration,
    ScriptRunConfig,
    TensorflowConfiguration,
)
from allranks.errors import AllranksError
from allranks.spec.fields.identifiers import identifier
from allranks.spec.job import CommandJob
from allranks.spec.sweep.job import SweepJob


def job(**given: Any) -> dict[str, Any]:
    made = ScriptRunConfig(source_directory="src", **{"script": "train.py", **given}).job()
    CommandJob.parse({**made, "code": None})
    return made


@pytest.mark.parametrize(
    ("given", "nodes", "distribution"),
    [
        (None, 1, None),
        (MpiConfiguration(), 1, None),
        (MpiConfiguration(2, 3), 3, {"type": "mpi", "process_count_per_instance": 2}),
        (
            PyTorchConfiguration(node_count=2),
            2,
            {"type": "pytorch", "process_count_per_instance": 1},
        ),
        (
            PyTorchConfiguration("Gloo", 8, 2),
            2,
            {"type": "pytorch", "process_count_per_instance": 4},
        ),
        (
            TensorflowConfiguration(3, 1),
            3,
            {"type": "tensorflow", "worker_count": 3, "parameter_server_count": 1},
        ),
    ],
)
def test_distributions(given: Any, nodes: int, distribution: Any) -> None:
    made = job(distributed_job_config=given)
    assert made["resources"].get("instance_count", 1) == nodes
    assert made.get("distribution") == distribution


def test_processes_must_fit_the_nodes() -> None:
    with pytest.raises(UserErrorException, match="3 processes cannot be shared by 2 nodes"):
        job(distributed_job_config=PyTorchConfiguration(process_count=3, node_count=2))


def test_an_older_run_configuration() -> None:
    config = RunConfiguration(framework="Python", communicator="Mpi")
    config.node_count, config.mpi = 2, MpiConfiguration(process_count_per_node=2)
    config.target, config.environment_variables = "cpu-cluster", {"A": 1}
    config.environment.environment_variables = {"A": 0, "B": "2"}
    made = job(run_config=config, docker_runtime_config=DockerConfiguration(shm_size="2g"))
    assert made["distribution"] == {"type": "mpi", "process_count_per_instance": 2}
    assert made["resources"] == {"instance_count": 2, "shm_size": "2g"}
    assert (made["compute"], made["environment_variables"]) == ("cpu-cluster", {"A": "1", "B": "2"})


def test_words_are_quoted_and_data_is_bound() -> None:
    store = Datastore(None, "workspaceblobstore")
    data, out = FileDataset("https://h/iris.csv", "uri_file"), OutputFileDatasetConfig("My out")
    made = job(
        arguments=[
            *("--note", "it's two words", "--n", 3, data.as_named_input("Iris").as_download()),
            *(store.path("x").as_mount(), out, data.as_named_input("iris").as_mount()),
        ],
    )
    assert made["command"] == (
        "python train.py --note 'it'\"'\"'s two words' --n 3 ${{inputs.iris}} "
        "${{inputs.workspaceblobstore_x}} ${{outputs.my_out}} ${{inputs.iris_2}}"
    )
    assert made["inputs"]["iris"] == {
        "type": "uri_file",
        "path": "https://h/iris.csv",
        "mode": "download",
    }
    assert made["inputs"]["iris_2"]["mode"] == "ro_mount"
    assert made["outputs"] == {"my_out": {"type": "uri_folder", "mode": "rw_mount"}}


def test_a_command_is_taken_as_it_is() -> None:
    made = job(script=None, command=["torchrun --nproc 2 train.py --data", "x", "--epochs 3"])
    assert made["command"] == "torchrun --nproc 2 train.py --data x --epochs 3"
    with pytest.raises(UserErrorException, match="exclude each other"):
        job(command="x")
    with pytest.raises(UserErrorException, match="nothing to run"):
        job(script=None)


@pytest.mark.parametrize("text", ["--a-b", "A b", "9", "", "ünï", "${{x}}", "a/b"])
def test_names_are_names(text: str) -> None:
    bound = Bound()
    assert command_of([text or "''"], bound)
    name = identifier(text)
    CommandJob.parse({"command": "x", "inputs": {name: 1}})


def test_a_dockerfile_is_kept_once_for_the_nodes_that_build_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    made, again, other = (
        Environment.from_dockerfile("d", text).as_spec()["build"]["path"]  # type: ignore[index]
        for text in ("FROM a\n", "FROM a", "FROM b")
    )
    assert made == again != other
    assert Path(made, "Dockerfile").read_text() == "FROM a\n"
    assert Path(made).is_relative_to(tmp_path / "home")
    assert (tmp_path / "home").stat().st_mode & 0o077 == 0
    assert list((tmp_path / "temporary").iterdir()) == []
    assert len([*(tmp_path / "home").rglob("*")]) == 5  # no partial file either


def test_threads_may_write_the_same_dockerfile_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "home"))
    written, rename = threading.Barrier(2), Path.replace
    monkeypatch.setattr(Path, "replace", lambda *paths: (written.wait(9), rename(*paths)))
    made = Environment.from_dockerfile("d", "FROM a\n")
    with ThreadPoolExecutor(2) as pool:
        one, other = pool.map(lambda _: made.as_spec(), range(2))
    assert one == other
    assert [each.name for each in (tmp_path / "home").rglob("*") if each.is_file()] == [
        "Dockerfile"
    ]


def test_environments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLRANKS_HOME", str(tmp_path / "home"))
    conda = tmp_path / "conda.yml"
    conda.write_text("dependencies: [python=3.8, numpy, {pip: [torch]}]")
    of_file = Environment.from_conda_specification("e", str(conda))
    packages = {"dependencies": ["python=3.8", "numpy", {"pip": ["torch"]}]}
    assert of_file.as_spec() == {"conda_file": {"channels": ["conda-forge"], **packages}}
    assert Environment("empty").as_spec() == "current"
    image = Environment.from_docker_image("i", "fastdotai/fastai2:latest")
    assert image.as_spec() == {"image": "fastdotai/fastai2:latest"}
    curated = Environment.get(None, "AzureML-sklearn-1.0", version="3")
    assert curated.as_spec() == "azureml:AzureML-sklearn-1.0:3"
    more = curated.clone("more")
    more.python.conda_dependencies.add_pip_package("shap")
    built = more.as_spec()["build"]["path"]  # type: ignore[index]
    assert Path(built, "Dockerfile").read_text() == (
        "FROM mcr.microsoft.com/azureml/curated/azureml-sklearn-1.0:3\nRUN pip install shap\n"
    )
    assert curated.as_spec() == "azureml:AzureML-sklearn-1.0:3"  # the clone is another
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("# mine\nnumpy==2\n\n")
    made = Environment.from_pip_requirements("p", str(requirements))
    assert made.python.conda_dependencies.pip_packages == ["numpy==2"]


def test_conda_dependencies() -> None:
    made = CondaDependencies.create(pip_packages=[], conda_packages=[])
    made.add_conda_package("python=3.6.2")
    made.add_conda_package("scikit-learn")
    made.add_pip_package("pillow==6.2.1")
    made.set_python_version("3.10")
    made.remove_conda_package("scikit-learn")
    assert made.as_dict()["dependencies"] == ["python=3.10", {"pip": ["pillow==6.2.1"]}]
    assert "pillow==6.2.1" in made.serialize_to_string()


def test_hyperdrive() -> None:
    src = ScriptRunConfig(source_directory="src", script="t.py", arguments=["--n", 1])
    space = {"--batch-size": choice(25, 50), "lr": loguniform(-6, -1)}
    made = HyperDriveConfig(
        run_config=src,
        hyperparameter_sampling=RandomParameterSampling(space, properties={"seed": 3}),
        policy=BanditPolicy(slack_factor=0.15, evaluation_interval=1, delay_evaluation=10),
        primary_metric_name="acc",
        primary_metric_goal="MAXIMIZE",
        max_total_runs=8,
        max_duration_minutes=60,
    ).job()
    assert made["trial"]["command"] == (
        "python t.py --n 1 --batch-size '${{search_space.batch_size}}' --lr '${{search_space.lr}}'"
    )
    sweep = SweepJob.parse({**made, "trial": {**made["trial"], "code": None}})
    assert sweep.limits.timeout == 3600
    assert sweep.to_dict()["sampling_algorithm"] == {"type": "random", "seed": 3}
    assert choice([1, 2]) == choice(1, 2) == choice(range(1, 3))
    assert BayesianParameterSampling({}).algorithm() == {"type": "bayesian"}
    with pytest.raises(UserErrorException, match="new trials"):
        HyperDriveConfig(
            RandomParameterSampling(space), "a", "minimize", 1, run_config=src, resume_from=src
        )


def test_old_estimators_warn() -> None:
    with pytest.warns(DeprecationWarning, match="use ScriptRunConfig"):
        made = PyTorch(
            "src",
            entry_script="t.py",
            script_params={"--n": 1, "--flag": ""},
            node_count=2,
            use_gpu=True,
            pip_packages=["torch==2.1"],
        ).job()
    assert made["command"] == "python t.py --n 1 --flag"
    assert made["distribution"] == {"type": "mpi", "process_count_per_instance": 1}
    assert made["environment"]["conda_file"]["dependencies"] == [{"pip": ["torch==2.1"]}]
    with pytest.warns(DeprecationWarning, match="ScriptRunConfig"):
        tf = TensorFlow("src", entry_script="t.py", distributed_training=ParameterServer(2, 1))
    assert tf.job()["distribution"]["parameter_server_count"] == 1


def test_a_pipeline_can_be_submitted_twice() -> None:
    between = PipelineData("between")
    one = PythonScriptStep("a.py", "one", ["--out", between], outputs=[between], allow_reuse=False)
    two = CommandStep(["cat", between, "| wc"], "two", inputs=[between])
    three = CommandStep(runconfig=ScriptRunConfig("src", "c.py", ["--n", 1]), name="three")
    pipeline = Pipeline(None, steps=[two, three])
    first, second = pipeline.job()["jobs"], pipeline.job()["jobs"]
    assert list(first) == [three.node, one.node, two.node]
    commands = {name: each["command"] for name, each in first.items()}
    assert commands == {
        one.node: "python a.py --out ${{outputs.between}}",
        two.node: "cat ${{inputs.between}} | wc",
        three.node: "python c.py --n 1",
    }
    fresh = [jobs[one.node].pop("environment_variables") for jobs in (first, second)]
    assert fresh[0] != fresh[1]  # so that it is not reused
    assert first == second
    assert first[two.node]["inputs"] == {
        "between": f"${{{{parent.jobs.{one.node}.outputs.between}}}}"
    }
    with pytest.raises(UserErrorException, match="no step makes the data 'lost'"):
        Pipeline(None, [PythonScriptStep("a.py", arguments=[PipelineData("lost")])]).job()
    with pytest.raises(UserErrorException, match="has no parameter 'lr'"):
        pipeline.job({"lr": 1})


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunConfiguration(comand="x"),
        lambda: Environment("e", pythn="3"),
        lambda: PipelineData("d", datastor="x"),
        lambda: HyperDriveConfig(
            RandomParameterSampling({}), "a", "minimize", 1, run_config=object(), polcy=object()
        ),
        lambda: v2.Input(path="x", mod="download"),
    ],
)
def test_what_would_be_ignored_is_refused(make: Any) -> None:
    with pytest.raises(AllranksError) as caught:
        make()
    assert any(
        word in str(caught.value) for word in ("comand", "pythn", "datastor", "polcy", "mod")
    )


def test_a_data_reference_in_text_is_an_input() -> None:
    reference = DataReference(Datastore(None, "d"), "Model", "a/b")
    src = ScriptRunConfig(".", "t.py", ["--from", str(reference), "$HOME"])
    src.run_config.data_references = {"Model": reference.to_config()}
    made = src.job()
    assert made["command"] == "python t.py --from ${{inputs.model}} '$HOME'"
    assert made["inputs"]["model"]["path"] == "azureml://datastores/d/paths/a/b"
    assert made["environment_variables"] == {"AZUREML_DATAREFERENCE_Model": "${{inputs.model}}"}
    assert DataReference(Datastore(None, "d"), None, "a/b").name == "d_a_b"


def test_the_arguments_of_a_run() -> None:
    command = "python t.py --data ${{inputs.d}} --n ${{inputs.n}} --lr ${{search_space.lr}} 'a b'"
    spec = {"command": command, "inputs": {"d": {"path": "x"}, "n": 3}}
    found = definition({"spec": spec, "parameters": {"lr": 0.5}})
    said = ["--data", "DatasetConsumptionConfig:d", "--n", "3", "--lr", "0.5", "a b"]
    assert (found["script"], found["arguments"]) == ("t.py", said)
    assert definition({"spec": {"command": "echo 'x"}}) == {"command": "echo 'x"}
    assert definition({}) == {}
