"""Programs that submit jobs with Azure ML's first Python SDK, unmodified, by `allranks python`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import CLI, Allranks, answer, environment

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
    Dataset.get_by_name(ws, "my birds")
except UserErrorException:
    Dataset.File.from_files((store, "birds")).register(ws, "my birds", create_new_version=True)
data = Dataset.get_by_name(ws, name="my birds")
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
from azureml.data.datapath import DataPath, DataPathComputeBinding
from azureml.data.dataset_consumption_config import DatasetConsumptionConfig
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
store = ws.get_default_datastore()
store.upload("data", "birds")
place = (PipelineParameter("place", DataPath(store, "nowhere")), DataPathComputeBinding("mount"))
rows = PipelineParameter("rows", Dataset.File.from_files((store, "birds")))
rows = DatasetConsumptionConfig("rows", rows).as_mount()
three = PythonScriptStep("train.py", "three", ["--data", place], inputs=[place, rows], **common)
three.run_after(two)
pipeline = Pipeline(workspace=ws, steps=[three])
pipeline.validate()
parameters = {"reg": 0.25, "place": DataPath(store, "birds")}
run = Experiment(ws, "three").submit(pipeline, pipeline_parameters=parameters)
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
    assert "['/a.csv'] ['my-birds']" in said
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
    assert "data ['a.csv']" in done.stdout
    assert metrics.startswith("{'mse': [0.0225")


@pytest.mark.slow
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
    lambda: Experiment(ws, "four").start_logging(no_such=1),
    lambda: Workspace.from_config(path="nowhere"),
    lambda: ws.models["nothing"] if "nothing" in ws.models else Environment.get(ws, "nothing"),
    lambda: Estimator("src", entry_script="fails.py", source_directory_data_store=3),
    lambda: __import__("azureml.opendatasets"),
):
    try:
        wrong()
    except Exception as error:
        print(type(error).__name__, "|", error, "|", getattr(error, "hint", ""))
(open("src/waits.py", "w")).write("import time; time.sleep(300)")
run = Experiment(ws, "four").submit(ScriptRunConfig("src", "waits.py", environment=env))
import zipfile
print(zipfile.ZipFile(run.restore_snapshot(path="got")).read("waits.py"))
run.fail("no birds")
print(run.wait_for_completion(raise_on_error=False)["status"])
""",
    )
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[1:]
    assert said.pop(-2) == "b'import time; time.sleep(300)'"
    assert (said.pop(), "is canceled: the status Failed" in done.stderr) == ("Canceled", True)
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
    assert "no_such" in said[4]
    assert "leave the path out" in said[5]
    assert "source_directory_data_store" in said[7]
    assert "azureml.opendatasets is not there in allranks: download the files" in said[8]


INTERACTIVE = """
import os
from azureml.core import Experiment, Workspace
ws = Workspace.from_config()
print(ws.id)
open("plot.txt", "w").write("plot")
for alpha in (0.1, 0.2):
    with Experiment(ws, "by hand").start_logging(display_name=f"alpha {alpha}") as run:
        for step in range(3):
            run.log("mse", alpha + step)
        run.log_row("table", a=1, b=2)
        run.upload_file("outputs/plot.txt", "plot.txt")
        run.tag("alpha", str(alpha))
        run.child_run("fold").log("mse", 7)
        assert run.get_status() == "Running"
    print(run.display_name, run.get_status(), run.get_metrics(), run.get_tags())
    run.download_file("outputs/plot.txt", "back.txt")
    print(open("back.txt").read(), run.register_model("kept", "outputs/plot.txt").version)
run = Experiment(ws, "by hand").start_logging()
run.fail()
print(run.get_status())
left = Experiment(ws, "left").start_logging()
left.log("last", 1)
"""


@pytest.mark.slow
def test_a_program_logs_to_a_run_of_its_own(allranks: Allranks, code: Path) -> None:
    (code / "submit.py").write_text(INTERACTIVE)
    done = allranks("python", "submit.py")
    assert done.returncode == 0, done.stderr
    first, *said = done.stdout.splitlines()
    assert first.startswith("/subscriptions/")
    assert first.endswith("/workspaces/allranks")
    metrics = "{'fold/mse': 7.0, 'mse': [0.1, 1.1, 2.1], 'table': {'a': 1, 'b': 2}}"
    assert said[0] == f"alpha 0.1 Completed {metrics} {{'alpha': '0.1'}}"
    assert said[1] == "plot 1"
    assert "'mse': [0.2, 1.2, 2.2]" in said[2]
    assert said[3:] == ["plot 2", "Failed"]
    # The program's end completes a run.
    (left,) = answer(allranks, "job", "list", "--experiment", "left")
    assert left["status"] == "Completed"
    assert list(answer(allranks, "job", "metrics", left["name"])) == ["last"]


CRASHED = """
import os, sys
from azureml.core import Experiment, Workspace
ws = Workspace.from_config()
run = Experiment(ws, "forked").start_logging()
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    os.read(read, 1)
    os._exit(0)
run.complete()
print(run.get_status())
os.close(write)
os.waitpid(child, 0)
run = Experiment(ws, "left").start_logging()
child = os.fork()
if child == 0:
    sys.exit()
os.waitpid(child, 0)
print(run.get_status())
run.log("last", 1)
raise ValueError("no birds")
"""


EXITS = {
    "exit.train(); sys.exit(3)": 3,
    "try:\n    exit.train(3)\nfinally:\n    print(1)": 3,
    "with open(__file__):\n    sys.exit('no birds')": 1,
    "try:\n    sys.exit(3)\nexcept SystemExit:\n    pass": 0,
    "exit.train(0)": 0,
    "try:\n    sys.exit(3)\nexcept SystemExit:\n    sys.exit(0)": 0,
}


@pytest.mark.slow
def test_sys_exit_ends_a_run_with_its_code(allranks: Allranks, code: Path) -> None:
    (code / "exit.py").write_text(
        "import sys\n\ndef train(code=None):\n    if code is not None:\n        sys.exit(code)\n"
    )
    begin = "import sys, exit\nfrom azureml.core import Experiment, Workspace\n"
    begin += "Experiment(Workspace.from_config(), sys.argv[1]).start_logging()\n"
    ends = {}
    for number, end in enumerate(EXITS):
        (code / "submit.py").write_text(f"{begin}{end}\n")
        allranks("python", "submit.py", f"e{number}")
        (job,) = answer(allranks, "job", "list", "--experiment", f"e{number}")
        ends[end] = (job["status"], job["exit_code"])
    assert ends == {end: ("Failed" if code else "Completed", code) for end, code in EXITS.items()}


@pytest.mark.slow
def test_a_run_ends_with_its_program_not_with_what_it_forked(
    allranks: Allranks, code: Path
) -> None:
    (code / "submit.py").write_text(CRASHED)
    done = allranks("python", "submit.py")
    assert done.stdout == "Completed\nRunning\n", done.stderr
    assert done.stderr.endswith("ValueError: no birds\n")
    (left,) = answer(allranks, "job", "list", "--experiment", "left")
    assert left["status"] == "Failed"
    assert list(answer(allranks, "job", "metrics", left["name"])) == ["last"]


@pytest.mark.slow
def test_a_run_whose_job_is_queued_says_so_once(allranks: Allranks, home: Path, code: Path) -> None:
    take = ("run", "--detach", "--set", "resources.properties.local.memory=64m", "-n", 64)
    first = allranks(*take, "--", "sleep", "600").stdout.strip()
    program = 'Experiment(Workspace(), "queued").start_logging().complete()'
    words = ["python", "-c", f"from azureml.core import Experiment, Workspace; {program}"]
    argv = [sys.executable, "-c", CLI, *words]
    options = {"env": environment(home), "cwd": code, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, **options) as process:
        line = process.stderr.readline()
        assert allranks("job", "cancel", first).returncode == 0
        rest = process.stderr.read()
    (queued,) = answer(allranks, "job", "list", "--experiment", "queued")
    assert line.startswith(f"note: waiting for the job {queued['name']}: "), line
    assert line.endswith(f"; see allranks job show {queued['name']}\n")
    assert (process.returncode, rest) == (0, "")
    assert queued["status"] == "Completed"


CELLS = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance()
shell.run_cell("from azureml.core import Experiment, Workspace")
for name, cells in {"mended": ["1 / 0", "1"], "broken": ["1", "1 / 0"]}.items():
    shell.run_cell(f"run = Experiment(Workspace.from_config(), {name!r}).start_logging()")
    for cell in cells:
        shell.run_cell(cell)
    shell.user_ns["run"]._at_exit()
"""


@pytest.mark.slow
def test_a_run_of_a_notebook_fails_with_its_last_cell(allranks: Allranks, code: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    (code / "cells.py").write_text(CELLS)
    done = allranks("python", "cells.py")
    assert done.returncode == 0, done.stderr
    jobs = answer(allranks, "job", "list")
    assert {job["experiment_name"]: job["status"] for job in jobs} == {
        "mended": "Completed",
        "broken": "Failed",
    }


def test_only_plain_tables_are_read_as_data_assets_say() -> None:
    from allranks.compat.azure.v1.data.datasets import how_read

    table = {"reader": "csv", "options": {"sep": ";"}}
    how = {"table": table, "partition_format": "{a}/x.csv"}
    assert how_read({"azureml.dataset": json.dumps(how)}) == (table, "{a}/x.csv")
    parts = json.dumps({"table": None, "partition_format": "x"})
    assert how_read({"azureml.dataset": parts}) == (None, "x")
    table["reader"] = "pickle"
    assert how_read({"azureml.dataset": json.dumps(how)})[0] is None
    for text in ("", "[]", "{", '{"table": 1}'):
        assert how_read({"azureml.dataset": text}) == (None, None)


def test_an_environment_is_saved(tmp_path: Path) -> None:
    from allranks.compat.azure.v1.environment import Environment

    made = Environment("mine")
    made.python.conda_dependencies.add_pip_package("tqdm")
    made.docker.base_image = "python:3.11"
    made.environment_variables = {"A": "1"}
    made.save_to_directory(str(tmp_path / "env"))
    names = {each.name for each in (tmp_path / "env").iterdir()}
    assert names == {"azureml_environment.json", "conda_dependencies.yml"}
    definition = json.loads((tmp_path / "env" / "azureml_environment.json").read_text())
    assert (definition["name"], definition["environmentVariables"]) == ("mine", {"A": "1"})
    conda = Environment.from_conda_specification("x", str(tmp_path / "env/conda_dependencies.yml"))
    assert conda.python.conda_dependencies.pip_packages == ["tqdm"]
    with pytest.raises(FileExistsError):
        made.save_to_directory(str(tmp_path / "env"))


@pytest.mark.medium
def test_a_low_priority_compute_has_spot_jobs_and_sizes_are_noted(
    shared: Allranks, code: Path
) -> None:
    (code / "submit.py").write_text(
        """
from azureml.core import Experiment, ScriptRunConfig, Workspace
from azureml.core.compute import AmlCompute, ComputeTarget
ws = Workspace.from_config()
config = AmlCompute.provisioning_configuration(
    vm_size="STANDARD_NC6", vm_priority="lowpriority", max_nodes=4)
target = ComputeTarget.create(ws, "cheap", config)
target.wait_for_completion(True, 2, 20)
for each in (target, "cheap", "local"):
    job = ScriptRunConfig(".", command="true", compute_target=each).job()
    print(target.vm_priority, job.get("queue_settings"))
"""
    )
    done = shared("python", "submit.py")
    assert done.returncode == 0, done.stderr
    spot = "lowpriority {'job_tier': 'spot'}"
    assert done.stdout.splitlines()[1:] == [spot, spot, "lowpriority None"]
    of = "AmlCompute.provisioning_configuration"
    assert f"note: no effect here: vm_size, max_nodes of {of}" in done.stderr
    assert (
        "note: no effect here: min_node_count, timeout_in_minutes of ComputeTarget.wait"
        in done.stderr
    )


@pytest.mark.medium
def test_mlflow_of_a_submitting_program_is_let_in(allranks: Allranks, code: Path) -> None:
    (code / "submit.py").write_text(
        """
import os, urllib.error, urllib.request
from azureml.core import Workspace
from azure.ai.ml import MLClient
os.environ.pop("MLFLOW_TRACKING_TOKEN", None)
uri = Workspace.from_config().get_mlflow_tracking_uri()
token = os.environ["MLFLOW_TRACKING_TOKEN"]
ask = urllib.request.Request(uri + "/version", headers={"Authorization": "Bearer " + token})
try:
    print(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(ask).status)
except urllib.error.HTTPError as error:
    print(error.code)
print(MLClient(None).workspaces.get("w").mlflow_tracking_uri == uri)
"""
    )
    done = allranks("python", "submit.py", env={"ALLRANKS_MLFLOW_PYTHON": sys.executable})
    # 501: let in, and MLflow is not installed.
    assert done.stdout.splitlines() in (["200", "True"], ["501", "True"]), done.stderr


def test_a_config_file_is_read(code: Path, tmp_path: Path) -> None:
    from allranks.compat.azure.v1.workspace import Workspace

    given = {"subscription_id": "s", "resource_group": "g", "workspace_name": "w"}
    (tmp_path / "config.json").write_text(json.dumps(given))
    found = Workspace.from_config(str(tmp_path / "config.json"))
    details = {key: found.get_details()[key] for key in [*given][:2]}
    assert (found.name, details) == ("w", {key: given[key] for key in details})
