"""Forms that Azure's client takes, beyond those of its documentation."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

from allranks.agent import inside
from allranks.errors import SpecError
from allranks.sdk.submit.prepare import prepare
from allranks.spec import datastore
from allranks.spec.ignored_keys import job_notes
from allranks.spec.pipeline.component import parse_component
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import steps_of
from allranks.spec.schedule import parse_schedule
from allranks.spec.yaml.load import loads


@pytest.fixture
def parallel_step(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The program of a parallel step, which runs with its folder on the path."""
    monkeypatch.syspath_prepend(inside.__path__[0])
    return importlib.import_module("allranks_parallel_step")


def test_ports_of_the_type_path_are_data() -> None:
    ports = {"inputs": {"x": {"type": "path"}}, "outputs": {"y": {"type": "path"}}}
    made = parse_component({"command": "cat ${{inputs.x}}", **ports})
    assert (made.inputs["x"].type, made.outputs["y"].type) == ("uri_folder", "uri_folder")


def test_a_number_for_an_enum_of_text() -> None:
    size = {"type": "string", "enum": ["224", "384"], "default": "224"}
    component = {"command": "echo ${{inputs.size}}", "inputs": {"size": size}}
    job = PipelineJob.parse({"jobs": {"a": {"component": component, "inputs": {"size": 224}}}})
    assert steps_of(job)["a"].inputs == {"size": "224"}


def test_an_environment_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "env.yml").write_text("name: e\nconda_file: conda.yml\n")
    (tmp_path / "conda.yml").write_text("dependencies: [pip, {pip: [tqdm]}]")
    job = loads("command: 'true'\nenvironment: file:./env.yml")
    made, _ = prepare(job.to_dict(), tmp_path)
    conda = {"dependencies": ["pip", {"pip": ["tqdm"]}]}
    assert made["spec"]["environment"] == {"name": "e", "conda_file": conda}
    step = {"command": "true", "environment": "file:env.yml"}
    made, _ = prepare({"type": "pipeline", "jobs": {"a": step}}, tmp_path)
    assert made["spec"]["jobs"]["a"]["environment"]["conda_file"] == conda


PARALLEL: dict[str, Any] = {
    "type": "parallel",
    "inputs": {"data": {}},
    "input_data": "${{inputs.data}}",
    "task": {"entry_script": "score.py"},
}


def test_mini_batches_by_size_and_partition_keys(parallel_step: Any, tmp_path: Path) -> None:
    keys = {"mini_batch_size": "10kb", "partition_keys": ["year"], "error_threshold": 3}
    job = {"jobs": {"a": {**PARALLEL, **keys, "inputs": {"data": {"path": "p"}}}}}
    step = steps_of(PipelineJob.parse(job))["a"]
    assert '"mini_batch_size": "10kb"' in step.job["command"]
    assert parallel_step.parse_size("10kb") == (10240, True)
    assert job_notes(job) == [
        "no effect here: jobs.a.error_threshold (use mini_batch_error_threshold)",
        "no effect here: jobs.a.partition_keys (files are divided by number or size)",
    ]
    files = []
    for number, size in enumerate((4, 4, 4, 20, 1)):
        files.append(str(tmp_path / str(number)))
        Path(files[-1]).write_text("x" * size)
    batches = parallel_step.batches_of_bytes(files, 10)
    assert batches == [files[:2], files[2:3], files[3:4], files[4:]]
    table = tmp_path / "t.csv"
    table.write_text("a,b\n" + "1,2\n" * 5)
    csv = {"reader": "csv", "options": {"sep": ","}}
    pieces = parallel_step.pieces_of(str(table), 6, csv)
    assert [piece[1:] for piece in pieces] == [[4, 12], [12, 20], [20, 24]]
    with pytest.raises(SpecError, match="not a number of files"):
        steps_of(PipelineJob.parse({"jobs": {"a": {**PARALLEL, "mini_batch_size": "10 pieces"}}}))


def test_an_input_that_a_pipeline_component_does_not_declare_is_noted() -> None:
    step = {"command": "echo ${{inputs.n}}", "inputs": {"n": "${{parent.inputs.n}}"}}
    component = {"type": "pipeline", "inputs": {"n": {"type": "integer"}}, "jobs": {"a": step}}
    job = {"jobs": {"all": {"component": component, "inputs": {"n": 1, "more": 2}}}}
    assert steps_of(PipelineJob.parse(job))["all"].inputs == {"n": 1}
    why = "the component declares no such input"
    assert job_notes(job) == [f"no effect here: jobs.all.inputs.more ({why})"]
    whole = {"component": component, "inputs": {"n": 1, "more": 2}}
    assert steps_of(PipelineJob.parse(whole))["a"].inputs == {"n": 1}
    assert job_notes(whole) == [f"no effect here: inputs.more ({why})"]
    names = [f"n{number}" for number in range(20)]
    many = {"component": component, "inputs": dict.fromkeys(names, 1)}
    in_order = ", ".join(f"inputs.{name}" for name in names)
    assert job_notes(many) == [f"no effect here: {in_order} ({why})"]
    command = {"component": {"command": "true"}, "inputs": {"more": 2}}
    with pytest.raises(SpecError, match="the component has no input `more`"):
        steps_of(PipelineJob.parse({"jobs": {"a": command}}))


def test_a_step_has_the_name_of_its_component() -> None:
    component = {"name": "prepares", "version": "1", "command": "true"}
    for kind in (
        component,
        {"name": "prepares", "type": "pipeline", "jobs": {"b": {"component": component}}},
    ):
        step = {"component": kind, "properties": {"own": "yes"}}
        made = steps_of(PipelineJob.parse({"jobs": {"a": step}}))["a"].job
        assert made["properties"] == {"azureml.moduleName": "prepares", "own": "yes"}


def test_an_option_without_braces_is_noted_once() -> None:
    component = {"command": "echo $[[inputs.n]] $[[inputs.n]] $[[--m ${{inputs.m}}]]"}
    (note,) = job_notes({"jobs": {"a": {"component": component}}})
    assert "`$[[inputs.n]]` is the text `inputs.n` if" in note
    assert "${{inputs.n}}" in note


FLOW = "https://azuremlschemas.azureedge.net/promptflow/latest/flow.schema.json"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        ({"$schema": FLOW, "name": "a"}, "prompt flow"),
        ({"$schema": FLOW.replace("flow.schema", "flow.dag.schema"), "nodes": []}, "prompt flow"),
        ({"type": "spark"}, "Spark"),
        ({"$schema": "https://x/latest/dataTransferComponent.schema.json"}, "data transfer"),
    ],
)
def test_a_component_that_does_not_run_here_is_refused_as_what_it_is(
    data: dict[str, Any], kind: str
) -> None:
    with pytest.raises(SpecError, match=f"{kind} components do not run here"):
        parse_component(data)


def test_a_share_of_azures_is_no_azure_blob() -> None:
    share = {"name": "s", "type": "azure_file", "account_name": "a", "file_share_name": "f"}
    with pytest.raises(SpecError) as caught:
        datastore.parse(share)
    (problem,) = (each for each in caught.value.problems if each.where == "type")
    assert "do not open here" in problem.message
    assert "mount the share" in str(problem.hint)
    assert "did you mean" not in str(caught.value)


def test_week_days_of_azures_schema() -> None:
    for key in ("week_days", "weekdays"):
        pattern = {"hours": 4, key: ["monday"]}
        trigger = {"type": "recurrence", "frequency": "week", "schedule": pattern}
        made = parse_schedule({"name": "s", "trigger": trigger, "create_job": "job.yml"})
        assert made.to_dict()["trigger"]["schedule"]["weekdays"] == ["monday"]
