"""Programs in the manner of Azure's notebooks on parallel runs and published pipelines, unmodified,
by `allranks python`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.frameworks.environments import environment
from tests.support import Allranks, answer

pytestmark = pytest.mark.slow

BEGIN = """
import os, tempfile
from azureml.core import Dataset, Environment, Experiment, Workspace
from azureml.core.model import Model
from azureml.data import OutputFileDatasetConfig
from azureml.pipeline.core import Pipeline, PipelineData, PipelineParameter
ws = Workspace.from_config()
store = ws.get_default_datastore()
env = Environment(name="batch_environment")
env.python.user_managed_dependencies = True

def rows_of(run, step, output, config):
    batch_output = run.find_step_run(step.name)[0].get_output_data(output.name)
    target = tempfile.mkdtemp(dir=".")
    batch_output.download(local_path=target)
    names = (target, batch_output.path_on_datastore, config.append_row_file_name)
    again = tempfile.mkdtemp(dir=".")
    assert store.download(again, prefix=batch_output.path_on_datastore) >= 1
    assert os.path.exists(os.path.join(again, *names[1:]))
    return sorted(open(os.path.join(*names)).read().splitlines())
"""
FILES = """
from azureml.data.dataset_consumption_config import DatasetConsumptionConfig
from azureml.pipeline.steps import ParallelRunConfig, ParallelRunStep
store.upload("images", "mnist", overwrite=True)
images = PipelineParameter("images", Dataset.File.from_files((store, "mnist"), validate=False))
labels = Dataset.File.from_files((store, "mnist/a")).register(ws, "labels", create_new_version=True)
label_config = labels.as_named_input("labels_input").as_mount("/tmp/labels")
Model.register(model_path="models/", model_name="mnist-prs", workspace=ws)
config = ParallelRunConfig(
    source_directory="Code",
    entry_script="digits.py",
    mini_batch_size=PipelineParameter(name="batch_size_param", default_value="3"),
    error_threshold=1,
    output_action="append_row",
    append_row_file_name="outputs.txt",
    environment=env,
    compute_target="local",
    process_count_per_node=PipelineParameter(name="process_count_param", default_value=1),
    node_count=2,
    run_invocation_timeout=600,
)
scores = PipelineData(name="inferences", datastore=store)
step = ParallelRunStep(
    name="predict-digits",
    parallel_run_config=config,
    inputs=[DatasetConsumptionConfig("digits", images).as_mount()],
    output=scores,
    arguments=["--labels_dir", label_config, "--word", "it's"],
    side_inputs=[label_config],
    allow_reuse=False,
)
parts = Dataset.File.from_files(
    path=(store, "mnist/*/*.png"), partition_format="mnist/{user}/{digit}.png", validate=False
)
print(parts.partition_keys)
by_user = ParallelRunConfig(
    source_directory="Code", entry_script="sizes.py", partition_keys=["user"], error_threshold=5,
    output_action="append_row", environment=env, compute_target="local", node_count=1,
)
sizes = OutputFileDatasetConfig(name="sizes")
sums = ParallelRunStep(
    "sums", inputs=[parts.as_named_input("parts")], output=sizes, parallel_run_config=by_user
)
pipeline = Pipeline(workspace=ws, steps=[step, sums])
experiment = Experiment(ws, "digits")
run = experiment.submit(pipeline)
run.wait_for_completion(show_output=True)
print(rows_of(run, step, scores, config))
print(rows_of(run, sums, sizes, by_user))
one = Dataset.File.from_files((store, "mnist/a/0.png"), validate=False)
values = {"images": one, "batch_size_param": "1", "process_count_param": 2}
run = experiment.submit(Pipeline(ws, [step]), pipeline_parameters=values)
run.wait_for_completion()
print(rows_of(run, step, scores, config))
"""
DIGITS = """
import argparse, os
from azureml.core.model import Model
from azureml_user.parallel_run import EntryScript

def init():
    global model, options
    EntryScript().logger.info("init() is called.")
    parser = argparse.ArgumentParser()
    parser.add_argument("--labels_dir", required=True)
    parser.add_argument("--word")
    options, _ = parser.parse_known_args()
    model = os.listdir(Model.get_model_path("mnist-prs"))

def run(mini_batch):
    print(f"run method start: {len(mini_batch)}")
    files = [image for image in mini_batch if not image.endswith("bad.png")]
    words = (len(model), len(os.listdir(options.labels_dir)), options.word)
    return ["%s: %d %d %s" % (os.path.basename(file), *words) for file in files]
"""
SIZES = """
import os

def run(mini_batch, mini_batch_context):
    user = mini_batch_context.partition_key_value["user"]
    return [f"{user},{os.path.basename(file)},{len(mini_batch)}" for file in mini_batch]
"""


def folder(code: Path, program: str) -> None:
    for place, names in {"images/a": ("0", "1"), "images/b": ("2", "bad")}.items():
        (code / place).mkdir(parents=True)
        for name in names:
            (code / place / f"{name}.png").write_text(name)
    (code / "models").mkdir()
    for name in ("graph", "weights"):
        (code / "models" / name).write_text(name)
    (code / "Code").mkdir()
    (code / "Code" / "digits.py").write_text(DIGITS)
    (code / "Code" / "sizes.py").write_text(SIZES)
    (code / "Code" / "iris.py").write_text(IRIS)
    (code / "Code" / "compare.py").write_text("import sys; print('compares', *sys.argv[1:])")
    (code / "submit.py").write_text(BEGIN + program)


IRIS = """
import argparse, pickle
from azureml.core.model import Model
from azureml_user.parallel_run import EntryScript

def init():
    global factor
    parser = argparse.ArgumentParser()
    parser.add_argument("--model_name", required=True)
    options, _ = parser.parse_known_args()
    with open(Model.get_model_path(options.model_name), "rb") as file:
        factor = pickle.load(file)

def run(input_data):
    EntryScript().logger.info("run() is called with: {}.".format(input_data))
    result = input_data.drop(input_data.columns[1:], axis=1)
    result["variety"] = input_data["width"] * factor
    return result
"""
TABLES = """
import pickle, sys
sys.path.append(os.environ["PANDAS"])
from azureml.pipeline.steps import ParallelRunConfig, ParallelRunStep
os.makedirs("iris", exist_ok=True)
with open("iris/iris.csv", "w") as file:
    file.write("length,width\\n" + "".join(f"{n},{n % 3}\\n" for n in range(400)))
with open("iris_model.pkl", "wb") as file:
    pickle.dump(10, file)
store.upload("iris", "iris")
Model.register(model_path="iris_model.pkl", model_name="iris-prs", workspace=ws)
iris = Dataset.Tabular.from_delimited_files(path=store.path("iris/"), validate=False)
iris.register(ws, "iris")
env.environment_variables = {"PYTHONPATH": os.environ["PANDAS"]}
common = {"source_directory": "Code", "environment": env, "compute_target": "local"}
config = ParallelRunConfig(
    entry_script="iris.py", mini_batch_size="1KB", error_threshold=5, output_action="append_row",
    append_row_file_name="iris_outputs.txt", node_count=1, process_count_per_node=2, **common
)
output = PipelineData(name="inferences", datastore=store)
step = ParallelRunStep(
    name="example-iris",
    inputs=[Dataset.get_by_name(ws, "iris").as_named_input("iris_data")],
    output=output,
    parallel_run_config=config,
    arguments=["--model_name", "iris-prs"],
)
parts = iris.partition_by(["width"], target=(store, "by_width"), name="iris_parts")
by_width = ParallelRunConfig(
    entry_script="iris.py", partition_keys=parts.partition_keys, error_threshold=5,
    output_action="append_row", node_count=1, **common
)
sums = PipelineData(name="sums", datastore=store)
second = ParallelRunStep(
    "sums", inputs=[parts.as_named_input("parts")], output=sums, parallel_run_config=by_width,
    arguments=["--model_name", "iris-prs"],
)
run = Experiment(ws, "iris-prs").submit(Pipeline(workspace=ws, steps=[step, second]))
run.wait_for_completion(show_output=True)
rows = rows_of(run, step, output, config)
print(len(rows), rows[:2], rows == rows_of(run, second, sums, by_width))
"""
PUBLISHED = """
import json
from urllib.request import Request, urlopen
from azureml.core.authentication import InteractiveLoginAuthentication
from azureml.pipeline.core import PipelineRun, PublishedPipeline
from azureml.pipeline.core.schedule import Schedule, ScheduleRecurrence
from azureml.pipeline.steps import PythonScriptStep
value = PipelineParameter(name="pipeline_arg", default_value=10)
print("without one:", InteractiveLoginAuthentication().get_authentication_header())
step = PythonScriptStep("compare.py", "compare", ["--pipeline_param", value],
                        compute_target="local", source_directory="Code")
pipeline = Pipeline(workspace=ws, steps=[step])
published = pipeline.publish(
    name="My_New_Pipeline", description="first", version="0.1", continue_on_step_failure=True
)
run = Experiment(ws, "sample").submit(pipeline)
second = run.publish_pipeline(name="My_New_Pipeline2", description="second", version="0.2")
again = PublishedPipeline.get(ws, published.id)
print(again.name, again.version, again.status, [each.name for each in PublishedPipeline.list(ws)])
headers = InteractiveLoginAuthentication().get_authentication_header()
body = {"ExperimentName": "My_Pipeline1", "RunSource": "SDK",
        "ParameterAssignments": {"pipeline_arg": 45, "other": 6}}
request = Request(again.endpoint, json.dumps(body).encode(), {
    **headers, "Content-Type": "application/json"})
answered = json.load(urlopen(request))
print(answered["notes"])
by_request = PipelineRun(ws.experiments["My_Pipeline1"], answered["Id"])
by_request.wait_for_completion(show_output=True)
made = second.submit(ws, experiment_name="again", pipeline_parameters={"pipeline_arg": 46})
made.wait_for_completion(show_output=True)
second.disable()
print(second.status, [each.name for each in PublishedPipeline.list(ws)])

every = ScheduleRecurrence(frequency="Day", interval=2, hours=[22], minutes=[30])
Schedule.create(workspace=ws, name="My_Schedule", pipeline_id=published.id, recurrence=every,
                experiment_name="Schedule-run-sample", wait_for_provisioning=True)
(schedule,) = Schedule.list(ws, pipeline_id=published.id)
schedule.disable(wait_for_provisioning=True)
print(schedule.recurrence.hours, Schedule.get(ws, schedule.id).status, Schedule.list(ws))
schedule.update(name="My_Updated_Schedule", status="Active",
                recurrence=ScheduleRecurrence(frequency="Hour", interval=2))
fetched = Schedule.get(ws, schedule.id)
print(fetched.name, fetched.recurrence.frequency, fetched.status,
      fetched.pipeline_id == published.id)
for wrong in (
    lambda: published.submit(ws, "again", pipeline_parameters={"other": 1}),
    lambda: second.submit(ws, "again"),
    lambda: PublishedPipeline.get(ws, "nothing"),
    lambda: Schedule.create(ws, "s", published.id, "e", datastore=store),
    lambda: __import__("azureml.pipeline.core.module"),
):
    try:
        wrong()
    except Exception as error:
        print("refused:", error, getattr(error, "hint", ""))
"""


def test_files_in_mini_batches(allranks: Allranks, code: Path) -> None:
    folder(code, FILES)
    done = allranks("python", "submit.py", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "['user', 'digit']" in lines
    all_of_them, by_user, one = (line for line in lines if line.startswith('["') or "a,0" in line)
    # A file of three may be without a row.
    assert all_of_them == '["0.png: 2 2 it\'s", "1.png: 2 2 it\'s", "2.png: 2 2 it\'s"]'
    assert by_user == "['a,0.png,2', 'a,1.png,2', 'b,2.png,2', 'b,bad.png,2']"
    assert one == '["0.png: 2 2 it\'s"]'
    assert "4 files in 2 mini-batches" in done.stdout


@pytest.mark.frameworks
def test_rows_in_mini_batches(allranks: Allranks, code: Path) -> None:
    folder(code, TABLES)
    (pandas,) = environment("mlflow3").glob("lib/python3*/site-packages")
    done = allranks("python", "submit.py", env={"PANDAS": str(pandas)}, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "400 ['0 0', '1 10'] True"


def test_published_pipelines_and_their_schedules(allranks: Allranks, code: Path) -> None:
    folder(code, PUBLISHED)
    done = allranks("python", "submit.py", timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    both = "['My_New_Pipeline', 'My_New_Pipeline2']"
    assert "without one: {'Authorization': 'Bearer allranks'}" in lines
    assert f"My_New_Pipeline 0.1 Active {both}" in lines
    assert "['no effect here: other']" in lines
    assert "compares --pipeline_param 45" in done.stdout
    assert "compares --pipeline_param 46" in done.stdout
    assert "Disabled ['My_New_Pipeline']" in lines
    assert "[22] Disabled []" in lines
    assert "My_Updated_Schedule Hour Active True" in lines
    refused = [line for line in lines if line.startswith("refused")]
    assert "no parameter 'other' its parameters are: pipeline_arg" in refused[0]
    assert "My_New_Pipeline2 is disabled" in refused[1]
    assert "not found" in refused[2]
    assert "a Schedule that watches a datastore is not there" in refused[3]
    assert "PythonScriptStep" in refused[4]
    by_name = {row["name"].rpartition("-")[0]: row for row in answer(allranks, "schedule", "list")}
    assert by_name["My_New_Pipeline"]["trigger"]["type"] == "manual"
    assert "manual" in allranks("schedule", "list").stdout
