"""What a job is called in MLflow: names it takes, ids of its shape, units of its own."""

import posixpath
import re

from hypothesis import given
from hypothesis import strategies as st

from allranks.core.metrics import mlflow_run
from allranks.core.plan import InputTask, Task
from allranks.statuses import JobStatus

# As mlflow/utils/validation.py has it.
TAKEN = re.compile(r"[/\w.\- :]*")


def taken(name: str) -> bool:
    norm = posixpath.normpath(name)
    unique = norm == name and norm != "." and not norm.startswith(("..", "/"))
    return bool(TAKEN.fullmatch(name)) and unique and 0 < len(name) <= 250


@given(st.text(min_size=1, max_size=300))
def test_every_name_becomes_one_that_mlflow_takes(name: str) -> None:
    assert taken(mlflow_run.name(name))


@given(st.from_regex(TAKEN, fullmatch=True).filter(taken))
def test_a_name_that_mlflow_takes_stays(name: str) -> None:
    assert mlflow_run.name(name) == name


def test_names_that_look_alike_stay_apart() -> None:
    names = ["acc%", "acc$", "acc_", "/acc", "acc", "a//b", "a/b", "..", ".", "%"]
    assert len({mlflow_run.name(each) for each in names}) == len(names)
    assert set(mlflow_run.renamed(names)) == {"acc%", "acc$", "/acc", "a//b", "..", ".", "%"}


def test_ids_are_of_mlflows_shape_and_of_one_job() -> None:
    ids = {mlflow_run.run_id("a", 1.0), mlflow_run.run_id("a", 2.0), mlflow_run.run_id("b", 1.0)}
    assert len(ids) == 3
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in ids)


def test_what_is_told_of_a_job() -> None:
    inputs = (
        InputTask("lr", text="0.1"),
        InputTask("db", text="postgres://bob:hunter2@db/x"),
        InputTask("data", uri="s3://user:pass@b/x", asset=""),
        InputTask("digits", source="/x", asset="digits:3"),
    )
    task = Task("j", "e", "python t.py", inputs=inputs, environment="torch:2")
    spec = {"tags": {"team": "blue"}, "properties": {"azureml.git.commit": "abc"}}
    told = mlflow_run.run_data("j", "0" * 32, spec, task, "local")
    assert told.name == "j"
    assert told.params["lr"] == "0.1"
    assert "hunter2" not in told.params["db"]
    assert told.tags["team"] == "blue"
    assert told.tags["mlflow.source.git.commit"] == "abc"
    assert told.tags["allranks.environment"] == "torch:2"
    assert told.tags["allranks.input.digits"] == "digits:3"
    assert "pass" not in told.tags["allranks.input.data"]


def test_every_status_has_a_word() -> None:
    assert set(mlflow_run.STATUS) == set(JobStatus)


def test_resources_are_in_mlflows_units_and_place() -> None:
    assert mlflow_run.resource("node_memory", 1, 0) == ("system/system_memory_usage_megabytes", 1e6)
    assert mlflow_run.resource("memory", 1, 0) == ("system/job_memory_usage_megabytes", 1e6)
    assert mlflow_run.resource("cpu", 2, 1)[0] == "system/node_1/job_cpu_utilization_percentage"
    assert (
        mlflow_run.resource("gpu_load", 2, 1, gpu=3)[0]
        == "system/node_1/gpu_3_utilization_percentage"
    )
    assert mlflow_run.resource("cpu", 1, 0, rank=2)[0] == "system/rank_2_cpu_utilization_percentage"


def test_what_mlflow_and_we_say_by_tags_is_not_for_users_to_say() -> None:
    names = ("mlflow.runName", "mlflow.parentRunId", "allranks.main", "allranks.job", "mlflowish")
    told = mlflow_run.run_data(
        "j", "0" * 32, {"tags": dict.fromkeys(names, "x")}, Task("j", "e", "t"), "c"
    )
    assert told.tags["allranks.job"] == "j"
    assert {name for name, value in told.tags.items() if value == "x"} == {
        "tag.mlflow.runName",
        "tag.mlflow.parentRunId",
        "tag.allranks.main",
        "tag.allranks.job",
        "mlflowish",
    }
