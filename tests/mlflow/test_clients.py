"""Scripts of MLflow's clients, old and new, unchanged: what they log is on their job's run."""

import json

import pytest

from tests.mlflow.conftest import Tracked, params, tags

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

CLIENTS = pytest.mark.parametrize("client", ["mlflow2", "mlflow3"])

PLAIN = """
import mlflow, os
for step in range(3):
    mlflow.log_metric("loss", 1 / (step + 1), step=step)
mlflow.log_param("lr", 0.1)
open("notes.txt", "w").write("hello")
mlflow.log_artifact("notes.txt")
"""

OWN = """
import mlflow
mlflow.set_experiment("my very own")
with mlflow.start_run(run_name="first"):
    mlflow.log_metric("loss", 0.5)
    mlflow.log_param("fold", 1)
with mlflow.start_run(run_name="second"):
    mlflow.log_metric("loss", 0.25)
    mlflow.log_param("fold", 2)
"""

AUTOLOG = """
import mlflow, sys
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
mlflow.autolog()
model = LogisticRegression(max_iter=200).fit(*load_iris(return_X_y=True))
name = sys.argv[1]
info = mlflow.sklearn.log_model(model, "mine", registered_model_name=name)
mlflow.register_model(info.model_uri, name)
mlflow.register_model(info.model_uri, "not a name of ours")
loaded = mlflow.sklearn.load_model(f"models:/{name}/1")
print("score", loaded.score(*load_iris(return_X_y=True)))
"""

RANKS = """
import os, mlflow
from mlflow import MlflowClient
rank = int(os.environ["RANK"])
mlflow.log_metric(f"rank{rank}", rank)
MlflowClient().log_metric(os.environ.get("MLFLOW_RUN_ID", mlflow.active_run().info.run_id), "all", rank)
"""  # noqa: E501

DIRECT = """
import os
from mlflow import MlflowClient
client = MlflowClient()
told = os.environ["MLFLOW_RUN_ID"]
client.log_metric(told, "by id", 1)
experiment = client.get_experiment_by_name("lightning_logs")
made = client.create_run(experiment.experiment_id)
client.log_metric(made.info.run_id, "by another", 2)
client.set_terminated(told)
"""


@pytest.mark.parametrize(
    "client", ["mlflow2", pytest.param("mlflow3", marks=pytest.mark.end_to_end)]
)
def test_what_a_script_logs_is_on_its_jobs_run(tracked: Tracked, client: str) -> None:
    name = f"plain-{client}"
    tracked.job(PLAIN, "--name", name, client=client)
    (run,) = tracked.runs(name)
    assert tracked.history(run, "loss") == [(0, 1.0), (1, 0.5), (2, pytest.approx(1 / 3))]
    assert params(run)["lr"] == "0.1"
    assert tracked.shown("job", "show", name)["parameters"]["lr"] == "0.1"
    files = tracked.mlflow(f"artifacts/list?run_id={run['info']['run_id']}")["files"]
    assert [each["path"] for each in files] == ["notes.txt"]
    points = tracked.shown("job", "metrics", name)["loss"]
    assert [each["value"] for each in points] == [1.0, 0.5, pytest.approx(1 / 3)]


@CLIENTS
def test_an_experiment_and_runs_of_its_own_are_the_jobs(tracked: Tracked, client: str) -> None:
    name = f"own-{client}"
    tracked.job(OWN, "--name", name, "--experiment", "the job's", client=client)
    run, second = tracked.runs(name)
    assert params(run)["fold"] == "1"
    assert params(second)["fold"] == "2"
    assert tags(second)["mlflow.parentRunId"] == run["info"]["run_id"]
    metrics = tracked.shown("job", "metrics", name)
    assert metrics["loss"][0]["value"] == 0.5
    assert metrics["second/loss"][0]["value"] == 0.25
    found = tracked.mlflow("experiments/search", {"max_results": 100})["experiments"]
    assert "my very own" not in [each["name"] for each in found]


@CLIENTS
def test_autolog_and_models(tracked: Tracked, client: str) -> None:
    name = f"autolog-{client}"
    (tracked.code / "autolog.py").write_text(AUTOLOG)
    words = ("run", "--name", name, "--", "python", "autolog.py", f"model-{client}")
    done = tracked.allranks(*words, client=client)
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout
    assert float(said.split("score")[1].split()[0]) > 0.9
    run = tracked.runs(name)[0]
    assert params(run)["max_iter"] == "200"
    assert "training_accuracy_score" in {each["key"] for each in run["data"]["metrics"]}
    # What it registered is ours, too: once, although MLflow has it twice.
    (model,) = tracked.shown("model", "list", f"model-{client}")
    assert (model["version"], model["type"], model["job"]) == ("1", "mlflow_model", name)
    assert set(model["flavors"]) == {"python_function", "sklearn"}
    shown = tracked.shown("model", "show", f"model-{client}:1")
    assert "MLmodel" in {each["path"] for each in shown["files"]}
    assert "autolog.py" in shown["lineage"]["command"]
    events = tracked.shown("job", "events", name)
    notes = [each["data"]["message"] for each in events if each["kind"] == "notice"]
    assert len(notes) == 2
    assert notes[0].startswith(f"model-{client}:2 of MLflow's registry is model-{client}:1 in")
    assert "is not in `allranks model list`: " in notes[1]
    # A person registers it, whose number is taken here.
    taken = f"taken-{client}"
    tracked.allranks("model", "create", taken, "--path", "autolog.py")
    tracked.mlflow("registered-models/create", {"name": taken})
    found = tracked.mlflow(f"model-versions/get?name=model-{client}&version=1")["model_version"]
    asked = {key: found[key] for key in ("source", "run_id") if found.get(key)}
    if not found.get("run_id"):  # MLflow 3, of a model logged outside of a run
        asked["model_id"] = found["source"].removeprefix("models:/")
    made = tracked.mlflow("model-versions/create", {**asked, "name": taken})["model_version"]
    ours = tracked.shown("model", "show", f"{taken}:2")
    assert (made["version"], ours["job"], ours["digest"]) == ("1", name, shown["digest"])


@CLIENTS
def test_every_rank_logs_to_the_one_run(tracked: Tracked, client: str) -> None:
    name = f"ranks-{client}"
    tracked.job(RANKS, "--name", name, "-n", 2, "-d", "pytorch", client=client)
    (run,) = tracked.runs(name)
    assert {each["key"] for each in run["data"]["metrics"]} >= {"rank0", "rank1"}
    assert sorted(value for _, value in tracked.history(run, "all")) == [0, 1]


@CLIENTS
def test_the_plain_client_by_the_id_it_was_told(tracked: Tracked, client: str) -> None:
    name = f"direct-{client}"
    tracked.job(DIRECT, "--name", name, client=client)
    run, other = tracked.runs(name)
    assert tracked.history(run, "by id") == [(0, 1)]
    assert tracked.history(other, "by another") == [(0, 2)]


def test_a_run_made_by_the_plain_client_alone_is_the_jobs(tracked: Tracked) -> None:
    script = DIRECT.replace('client.log_metric(told, "by id", 1)', "")
    tracked.job(script, "--name", "made")
    (run,) = tracked.runs("made")
    assert tracked.history(run, "by another") == [(0, 2)]


def test_what_mlflow_refuses_is_told_to_the_script(tracked: Tracked) -> None:
    script = """
import math, mlflow
try:
    mlflow.log_metric("no such%name", 1)
except mlflow.exceptions.MlflowException as error:
    print("refused:", error.error_code)
for step, value in enumerate([math.nan, math.inf, -math.inf]):
    mlflow.log_metric("odd", value, step=step)
"""
    assert "refused: INVALID_PARAMETER_VALUE" in tracked.job(script, "--name", "odd")
    values = [each["value"] for each in tracked.shown("job", "metrics", "odd")["odd"]]
    assert values == ["NaN", "Infinity", "-Infinity"]
    assert "no such%name" not in json.dumps(tracked.shown("job", "metrics", "odd"))


FOLDS = """
import mlflow
with mlflow.start_run():
    for value in (1, 2):
        with mlflow.start_run(run_name="fold", nested=True):
            mlflow.log_metric("loss", value)
"""


def test_runs_of_one_name_stay_apart_and_a_users_tags_are_theirs(tracked: Tracked) -> None:
    tag = (
        "--tag",
        "mlflow.runName=mine",
        "--tag",
        "mlflow.parentRunId=x",
        "--tag",
        "allranks.job=y",
    )
    tracked.job(FOLDS, "--name", "folds", *tag)
    found = tracked.shown("job", "metrics", "folds")
    assert {name.rpartition("/")[2] for name in found} == {"loss"}
    assert sorted(point["value"] for points in found.values() for point in points) == [1, 2]
    assert len(found) == 2
    assert "fold/loss" in found
    own = tracked.runs("folds")[0]
    assert own["info"]["run_name"] == "folds"
    assert tags(own)["tag.mlflow.runName"] == "mine"
