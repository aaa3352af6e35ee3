"""Programs that submit jobs with Azure ML's first Python SDK, unmodified, by `allranks python`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import Allranks

TRAIN = """
import argparse, os
from azureml.core import Run
parser = argparse.ArgumentParser()
parser.add_argument("--reg", type=float, default=0.5)
parser.add_argument("--data")
parser.add_argument("--out")
options = parser.parse_args()
run = Run.get_context()
for alpha in (0.1, 0.2, 0.3):
    run.log("alpha", alpha)
    run.log("mse", (alpha - options.reg) ** 2)
run.log_row("best", alpha=0.2, word="two")
with open("outputs/model.pkl", "w") as file:
    file.write("model")
if options.data:
    print("data", sorted(os.listdir(options.data)))
if options.out:
    with open(os.path.join(options.out, "result.txt"), "w") as file:
        file.write("result")
"""
BEGIN = """
import azureml.core
from azureml.core import Dataset, Environment, Experiment, Run, ScriptRunConfig, Workspace
from azureml.core.compute import AmlCompute, ComputeTarget
from azureml.core.compute_target import ComputeTargetException
from azureml.exceptions import UserErrorException
from azureml.telemetry import set_diagnostics_collection
from azureml.widgets import RunDetails

set_diagnostics_collection(send_diagnostics=True)
ws = Workspace.from_config()
try:
    target = ComputeTarget(workspace=ws, name="hd-cluster")
except ComputeTargetException:
    config = AmlCompute.provisioning_configuration(vm_size="STANDARD_NC6", max_nodes=4)
    target = ComputeTarget.create(ws, "hd-cluster", config)
target.wait_for_completion(show_output=True, min_node_count=None, timeout_in_minutes=20)
env = Environment("mine")
env.python.user_managed_dependencies = True
"""
SUBMIT = """
from azureml.data import OutputFileDatasetConfig
store = ws.get_default_datastore()
store.upload(src_dir="data", target_path="birds", overwrite=True)
try:
    Dataset.get_by_name(ws, "birds")
except UserErrorException:
    Dataset.File.from_files((store, "birds")).register(ws, "birds", create_new_version=True)
data = Dataset.get_by_name(ws, name="birds")
print(data.to_path(), list(ws.datasets))
src = ScriptRunConfig(
    source_directory="src",
    script="train.py",
    arguments=["--reg", 0.3, "--data", data.as_named_input("in").as_mount(),
               "--out", OutputFileDatasetConfig(name="out")],
    compute_target=target,
    environment=env,
)
run = Experiment(ws, "one").submit(src, tags={"team": "vision"})
RunDetails(run).show()
run.wait_for_completion(show_output=True)
print(run.get_status(), run.get_metrics())
print(run.get_file_names())
run.download_file("outputs/model.pkl", "got/model.pkl")
model = run.register_model(model_name="birds", model_path="./outputs/model.pkl")
print(model.name, model.version, open("got/model.pkl").read(), run.get_tags())
print(Run.get(ws, run.id).id == run.id, len(list(Experiment(ws, "one").get_runs())))
"""
SWEEP = """
from azureml.train.hyperdrive import *
from azureml.train.hyperdrive import choice, uniform
sweep = HyperDriveConfig(
    run_config=ScriptRunConfig("src", "train.py", compute_target=target, environment=env),
    hyperparameter_sampling=GridParameterSampling({"--reg": choice(0.1, 0.4)}),
    policy=BanditPolicy(evaluation_interval=2, slack_factor=0.1, delay_evaluation=100),
    primary_metric_name="mse",
    primary_metric_goal=PrimaryMetricGoal.MINIMIZE,
    max_total_runs=2,
    max_concurrent_runs=2,
)
run = Experiment(ws, "two").submit(sweep)
run.wait_for_completion(show_output=False)
best = run.get_best_run_by_primary_metric()
print(best.get_metrics("alpha"), best.parent.id == run.id)
print([row["hyperparameters"] for row in run.get_children_sorted_by_primary_metric(top=1)])
"""
PIPELINE = """
from azureml.core.runconfig import RunConfiguration
from azureml.pipeline.core import Pipeline, PipelineData, PipelineParameter
from azureml.pipeline.steps import PythonScriptStep
config = RunConfiguration()
config.environment = env
between = PipelineData("between", datastore=ws.get_default_datastore())
reg = PipelineParameter("reg", 0.2)
common = {"compute_target": target, "runconfig": config, "source_directory": "src"}
one = PythonScriptStep("train.py", "one", ["--reg", reg, "--out", between],
                       outputs=[between], **common)
two = PythonScriptStep("train.py", "two", ["--data", between], inputs=[between], **common)
three = PythonScriptStep("train.py", "three", **common)
three.run_after(two)
pipeline = Pipeline(workspace=ws, steps=[three])
pipeline.validate()
run = Experiment(ws, "three").submit(pipeline, pipeline_parameters={"reg": 0.25})
run.wait_for_completion(show_output=True)
print(sorted((step.name, step.get_status()) for step in run.get_steps()))
print(run.find_step_run("one")[0].get_metrics("mse"))
"""


def folder(code: Path, *parts: str) -> None:
    (code / "src").mkdir()
    (code / "src" / "train.py").write_text(TRAIN)
    (code / "data").mkdir()
    (code / "data" / "a.csv").write_text("1")
    (code / "submit.py").write_text("".join((BEGIN, *parts)))


@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_job_with_data_and_outputs(allranks: Allranks, code: Path) -> None:
    folder(code, SUBMIT)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout
    assert "hd-cluster is the compute local of allranks" in said
    assert "['/a.csv'] ['birds']" in said
    assert "data ['a.csv']" in said
    alpha, mse = "'alpha': [0.1, 0.2, 0.3]", "'best': {'alpha': 0.2, 'word': 'two'}"
    line = next(line for line in said.splitlines() if line.startswith("Completed {"))
    assert alpha in line
    assert mse in line
    assert "'outputs/model.pkl', 'user_logs/std_log.txt'" in said
    assert "birds 1 model {'team': 'vision'}" in said
    assert said.endswith("True 1\n")


@pytest.mark.slow
def test_a_sweep(allranks: Allranks, code: Path) -> None:
    folder(code, SWEEP)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == [
        "{'alpha': [0.1, 0.2, 0.3]} True",
        "[{'reg': 0.1}]",
    ]


@pytest.mark.slow
def test_a_pipeline(allranks: Allranks, code: Path) -> None:
    folder(code, PIPELINE)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    steps, metrics = done.stdout.splitlines()[-2:]
    assert steps == "[('one', 'Completed'), ('three', 'Completed'), ('two', 'Completed')]"
    assert "data ['result.txt']" in done.stdout
    assert metrics.startswith("{'mse': [0.0225")


@pytest.mark.medium
def test_what_fails_says_why(allranks: Allranks, code: Path) -> None:
    folder(
        code,
        """
from azureml.train.estimator import Estimator
(open("src/fails.py", "w")).write("raise ValueError('no birds')")
run = Experiment(ws, "four").submit(ScriptRunConfig("src", "fails.py", environment=env))
print(run.wait_for_completion(raise_on_error=False)["status"])
for wrong in (
    lambda: run.wait_for_completion(),
    lambda: run.download_file("outputs/nothing"),
    lambda: Experiment(ws, "four").submit("a text"),
    lambda: Experiment(ws, "four").start_logging(),
    lambda: Workspace.from_config(path="nowhere"),
    lambda: ws.models["nothing"] if "nothing" in ws.models else Environment.get(ws, "nothing"),
    lambda: Estimator("src", entry_script="fails.py", source_directory_data_store=3),
    lambda: __import__("azureml.opendatasets"),
):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, "|", error, "|", getattr(error, "hint", ""))
""",
    )
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[1:]
    assert said[0] == "Failed"
    assert [each.partition(" |")[0] for each in said[1:]] == [
        "ActivityFailedException",
        "UserErrorException",
        "UserErrorException",
        "NotThere",
        "UserErrorException",
        "UserErrorException",
        "NotThere",
        "ImportError",
    ]
    assert "ValueError: no birds" in said[1]
    assert "run.get_file_names() lists them" in said[2]
    assert "submit the script" in said[4]
    assert "leave the path out" in said[5]
    assert "source_directory_data_store" in said[7]
    assert "azureml.opendatasets is not there in allranks: download the files" in said[8]


def test_a_config_file_is_read(code: Path, tmp_path: Path) -> None:
    from allranks.compat.azure.v1.workspace import Workspace

    given = {"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}
    (tmp_path / "config.json").write_text(json.dumps(given))
    found = Workspace.from_config(str(tmp_path / "config.json"))
    assert (found.name, found.get_details()) == ("w", {k: given[k] for k in [*given][:2]})
