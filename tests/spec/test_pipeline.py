"""Pipelines as files: steps, bindings, components, and what is wrong with them."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.errors import SpecError
from allranks.spec.pipeline.component import parse_component, with_components
from allranks.spec.pipeline.job import PipelineJob
from allranks.spec.pipeline.steps import Step, child_spec, steps_of
from allranks.spec.yaml import load

PIPELINE = """
type: pipeline
experiment_name: e
inputs:
  n: 3
  raw: {type: uri_file, path: /data/raw.csv}
outputs:
  model:
settings: {default_compute: local}
jobs:
  prep:
    command: prep ${{inputs.raw}} ${{inputs.n}} ${{outputs.data}}
    inputs: {raw: '${{parent.inputs.raw}}', n: 'n-${{ parent.inputs.n }}'}
    outputs: {data: }
  train:
    component:
      name: train
      version: 2
      inputs:
        data: uri_folder
      command: train ${{inputs.data}}
"""
TRAIN: dict[str, Any] = {
    "name": "train",
    "version": "2",
    "type": "command",
    "inputs": {
        "data": {"type": "uri_folder", "mode": "download"},
        "lr": {"type": "number", "default": 0.1, "min": 0, "max": 1},
        "kind": {"type": "string", "enum": ["a", "b"], "optional": True},
        "epochs": {"type": "integer", "optional": True},
        "fast": {"type": "boolean", "default": False},
    },
    "outputs": {"model": {"type": "uri_folder"}, "extra": {"type": "uri_file"}},
    "command": "train ${{inputs.data}} ${{inputs.lr}} ${{inputs.fast}} "
    "$[[--kind ${{inputs.kind}}]] $[[-e ${{inputs.epochs}}]] ${{outputs.model}}",
    "environment": "azureml:digits:1",
    "environment_variables": {"A": "1", "B": "2"},
    "resources": {"instance_count": 2},
}
PREP = {
    "command": "prep ${{inputs.raw}} ${{inputs.n}} ${{outputs.data}}",
    "inputs": {"raw": "${{parent.inputs.raw}}", "n": "n-${{ parent.inputs.n }}"},
    "outputs": {"data": None},
}


def pipeline(**jobs: Any) -> PipelineJob:
    data = {
        "type": "pipeline",
        "name": "p",
        "experiment_name": "e",
        "inputs": {"n": 3, "raw": {"type": "uri_file", "path": "/data/raw.csv"}},
        "settings": {"default_compute": "local"},
        "jobs": jobs,
    }
    return PipelineJob.parse(data)


def train(**more: Any) -> dict[str, Any]:
    inputs = {"data": "${{parent.jobs.prep.outputs.data}}", **more.pop("inputs", {})}
    return {"type": "command", "component": TRAIN, "inputs": inputs, **more}


def problems(**jobs: Any) -> list[tuple[str | None, str]]:
    with pytest.raises(SpecError) as caught:
        steps_of(pipeline(**jobs))
    assert all(each.hint for each in caught.value.problems)
    return [(each.where, each.message) for each in caught.value.problems]


def test_inputs_are_bound_and_steps_ordered():
    steps = steps_of(pipeline(train=train(inputs={"lr": "0.5", "epochs": "7"}), prep=PREP))
    assert [*steps] == ["prep", "train"]
    assert steps["prep"].inputs == {
        "raw": {"type": "uri_file", "path": "/data/raw.csv"},
        "n": "n-3",
    }
    assert steps["train"] == Step(
        name="train",
        type="command",
        job={
            "command": TRAIN["command"],
            "environment": "azureml:digits:1",
            "environment_variables": {"A": "1", "B": "2"},
            "resources": {"instance_count": 2},
            "properties": {"azureml.moduleName": "train"},
            "compute": "local",
        },
        inputs={
            "data": {
                "type": "uri_folder",
                "mode": "download",
                "path": "${{parent.jobs.prep.outputs.data}}",
            },
            "lr": 0.5,
            "epochs": 7,
            "fast": False,
        },
        outputs={"model": {"type": "uri_folder"}, "extra": {"type": "uri_file"}},
        after=("prep",),
        bound={},
        component="train:2",
    )


def test_a_step_becomes_a_job_with_the_outputs_of_others():
    job = pipeline(prep=PREP, train=train(display_name="T"))
    spec = child_spec(steps_of(job)["train"], "p_train", job, {"prep": "p_prep-2"})
    assert (spec["type"], spec["name"], spec["display_name"]) == ("command", "p_train", "T")
    assert (spec["parent_job_name"], spec["experiment_name"]) == ("p", "e")
    assert spec["inputs"]["data"]["path"] == "azureml://jobs/p_prep-2/outputs/data/paths/"


def test_what_a_step_sets_overrides_its_component():
    step = train(
        environment="azureml:other:1",
        environment_variables={"B": "3"},
        resources={"instance_type": "gpu"},
        compute="cluster",
        limits={"timeout": 60},
    )
    job = steps_of(pipeline(prep=PREP, train=step))["train"].job
    assert job["environment"] == "azureml:other:1"
    assert job["environment_variables"] == {"A": "1", "B": "3"}
    assert job["resources"] == {"instance_count": 2, "instance_type": "gpu"}
    assert (job["compute"], job["limits"]) == ("cluster", {"timeout": 60.0})


def test_paths_within_outputs_and_inputs_of_other_steps():
    show = {
        "command": "cat ${{inputs.file}} ${{inputs.lr}}",
        "inputs": {
            "file": "${{parent.jobs.train.outputs.model}}/best.pt",
            "lr": "${{parent.jobs.train.inputs.lr}}",
            "mapped": {
                "type": "uri_file",
                "mode": "download",
                "path": "${{parent.jobs.train.outputs.extra}}",
            },
        },
    }
    job = pipeline(prep=PREP, train=train(), show=show)
    step = steps_of(job)["show"]
    assert (step.after, step.inputs["lr"]) == (("train",), 0.1)
    inputs = child_spec(step, "p_show", job, {"train": "t", "prep": "x"})["inputs"]
    assert inputs["file"]["path"] == "azureml://jobs/t/outputs/model/paths//best.pt"
    assert inputs["mapped"] == {
        "type": "uri_file",
        "mode": "download",
        "path": "azureml://jobs/t/outputs/extra/paths/",
    }


def test_outputs_of_the_pipeline_keep_their_paths_and_names():
    data = {
        "type": "pipeline",
        "name": "p",
        "outputs": {"model": {"type": "mlflow_model", "path": "/x", "name": "m", "version": "3"}},
        "jobs": {
            "t": {
                "command": "true",
                "outputs": {"own": {"mode": "upload", "path": "${{parent.outputs.model}}"}},
            }
        },
    }
    step = steps_of(PipelineJob.parse(data))["t"]
    assert step.bound == {"model": "own"}
    assert step.outputs["own"] == {
        "mode": "upload",
        "type": "mlflow_model",
        "path": "/x",
        "name": "m",
        "version": "3",
    }


def test_a_components_distribution_keeps_its_type():
    component = {"command": "x", "environment": "current", "distribution": {"type": "pytorch"}}
    job = steps_of(pipeline(s={"component": component}))["s"].job
    assert job["distribution"] == {"type": "pytorch"}


def test_nested_pipelines_and_sweeps_with_components():
    inner = {
        "type": "pipeline",
        "inputs": {"rate": {"type": "number", "default": 0.2}, "data": {"type": "uri_folder"}},
        "outputs": {"best": {"type": "uri_folder"}},
        "jobs": {
            "one": {
                "component": TRAIN,
                "inputs": {
                    "data": "${{parent.inputs.data}}",
                    "lr": "${{parent.inputs.rate}}",
                },
                "outputs": {"model": "${{parent.outputs.best}}"},
            }
        },
    }
    swept = {
        "type": "sweep",
        "trial": TRAIN,
        "inputs": {"data": "${{parent.jobs.prep.outputs.data}}"},
        "search_space": {"lr": {"type": "uniform", "min_value": 0, "max_value": 1}},
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 3},
    }
    nested = {"component": inner, "inputs": {"data": "${{parent.jobs.prep.outputs.data}}"}}
    job = pipeline(prep=PREP, inner=nested, tune=swept)
    steps = steps_of(job)
    assert (steps["inner"].type, steps["tune"].type) == ("pipeline", "sweep")
    child = child_spec(steps["inner"], "p_inner", job, {"prep": "p_prep"})
    within = steps_of(PipelineJob.parse(child))["one"]
    assert within.inputs["lr"] == 0.2
    assert within.inputs["data"]["path"] == "azureml://jobs/p_prep/outputs/data/paths/"
    assert within.job["compute"] == "local"
    assert "--lr" not in steps["tune"].job["trial"]["command"]
    assert "${{search_space.lr}}" in steps["tune"].job["trial"]["command"]
    assert steps["tune"].outputs.keys() == {"model", "extra"}


@pytest.mark.parametrize(
    ("step", "where", "message"),
    [
        (train(inputs={"lr": 2}), "jobs.t.inputs.lr", "`2` is more than 1"),
        (train(inputs={"lr": -1}), "jobs.t.inputs.lr", "`-1` is less than 0"),
        (train(inputs={"lr": "much"}), "jobs.t.inputs.lr", "`much` is not of the type `number`"),
        (train(inputs={"kind": "c"}), "jobs.t.inputs.kind", "`c` is not one of `a`, `b`"),
        (
            train(inputs={"epochs": 1.5}),
            "jobs.t.inputs.epochs",
            "`1.5` is not of the type `integer`",
        ),
        (train(inputs={"fast": 3}), "jobs.t.inputs.fast", "`3` is not of the type `boolean`"),
        (train(inputs={"rate": 3}), "jobs.t.inputs.rate", "the component has no input `rate`"),
        (train(inputs={"lr": {"path": "/x"}}), "jobs.t.inputs.lr", "data cannot be a `number`"),
        (
            train(outputs={"modle": None}),
            "jobs.t.outputs.modle",
            "the component has no output `modle`",
        ),
        (
            train(outputs={"model": "${{parent.outputs.m}}"}),
            "jobs.t.outputs.model",
            "the pipeline has no output `m`",
        ),
        ({"component": TRAIN}, "jobs.t", "the input `data` is missing"),
        (
            {"command": "x", "inputs": {"a": "${{parent.jobs.t.outputs.a}}"}},
            "jobs.t.inputs.a",
            "the step `t` reads its own output",
        ),
        (
            {"command": "x", "inputs": {"a": "${{parent.jobs.perp.outputs.a}}"}},
            "jobs.t.inputs.a",
            "there is no step `perp`",
        ),
        (
            {"command": "x", "inputs": {"a": "${{parent.jobs.prep.outputs.dta}}"}},
            "jobs.t.inputs.a",
            "the step `prep` has no output `dta`",
        ),
        (
            {"command": "x", "inputs": {"a": "${{parent.inputs.m}}"}},
            "jobs.t.inputs.a",
            "the pipeline has no input `m`",
        ),
        (
            {"command": "x", "inputs": {"a": "${{inputs.n}}"}},
            "jobs.t.inputs.a",
            "`${{inputs.n}}` is not defined here",
        ),
        ({"command": "x ${{inputs.a}}"}, "jobs.t.command", "`${{inputs.a}}` is not defined"),
        ({"comand": "x"}, "jobs.t.comand", "`comand` is not a key"),
        ({}, "jobs.t.command", "`command` is required"),
        ({"type": "spark"}, "jobs.t.type", "`spark` steps are not supported in this version"),
        ({"type": "comand"}, "jobs.t.type", "`comand` is not a type of step"),
        (
            {"type": "pipeline", "component": TRAIN},
            "jobs.t.type",
            "the component is a command, and the step is not",
        ),
        (
            {"component": "azureml:gone:1"},
            "jobs.t.component",
            "component 'azureml:gone:1' not found",
        ),
        (
            {"component": {"command": "x ${{inputs.y}}"}},
            "jobs.t.component.command",
            "`${{inputs.y}}` is not defined",
        ),
    ],
)
def test_what_is_wrong_is_said_with_its_key(step, where, message):
    assert (where, message) in problems(prep=PREP, t=step)


def test_cycles_are_named():
    read = "${{{{parent.jobs.{}.outputs.o}}}}".format
    step = {"command": "x", "outputs": {"o": None}}
    found = problems(
        a={**step, "inputs": {"i": read("c")}},
        b={**step, "inputs": {"i": read("a")}},
        c={**step, "inputs": {"i": read("b")}},
    )
    assert len(found) == 1
    assert found[0][1].startswith("the steps wait for each other: ")
    assert {*found[0][1].rpartition(": ")[2].split(" -> ")} == {"a", "b", "c"}


def test_bad_names_outputs_without_a_writer_and_two_writers():
    with pytest.raises(SpecError, match="`A-b` is not the name of a step"):
        pipeline(**{"A-b": PREP})
    data = {"type": "pipeline", "outputs": {"m": None}, "jobs": {"a": {"command": "x"}}}
    with pytest.raises(SpecError, match="no step writes the output `m`"):
        steps_of(PipelineJob.parse(data))
    writer = {"command": "x", "outputs": {"o": "${{parent.outputs.m}}"}}
    data["jobs"] = {"a": writer, "b": writer}
    with pytest.raises(SpecError, match="`m` is also written by the step `a`"):
        steps_of(PipelineJob.parse(data))
    with pytest.raises(SpecError, match="a pipeline needs steps"):
        PipelineJob.parse({"type": "pipeline"})


def test_lines_of_the_file_are_named():
    with pytest.raises(SpecError) as caught:
        load.loads("type: pipeline\nsettings:\n  force_rerun: maybe\njobs:\n  a: {command: x}\n")
    assert caught.value.problems[0].line == 3


def test_registered_components_are_found_at_every_depth():
    job = {
        "type": "pipeline",
        "jobs": {
            "a": {"component": "azureml:train:2"},
            "s": {"type": "sweep", "trial": "azureml:train@latest"},
            "n": {"type": "pipeline", "jobs": {"b": {"component": "azureml:train:1"}}},
        },
    }
    asked = []

    def find(reference: str, where: str) -> dict[str, Any]:
        asked.append((reference, where))
        return TRAIN

    made = with_components(job, find)
    assert asked == [
        ("azureml:train:2", "jobs.a.component"),
        ("azureml:train@latest", "jobs.s.trial"),
        ("azureml:train:1", "jobs.n.jobs.b.component"),
    ]
    assert made["jobs"]["n"]["jobs"]["b"]["component"] == TRAIN


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"command": "x", "inputs": {"a": {"type": "numbr"}}}, "must be one of"),
        ({"command": "x", "inputs": {"a": {"type": "integer", "default": "x"}}}, "`x` is not of"),
        ({"command": "x", "inputs": {"a": {"default": "x"}}}, "data has no default"),
        ({"type": "sparkle"}, "`sparkle` is not a type of component"),
        ({"type": "command"}, "`command` is required"),
        ({"type": "pipeline", "jobs": {}}, "must not be empty"),
        ({"command": "x", "is_deterministic": "perhaps"}, "must be `true` or `false`"),
        ({"command": "x", "retries": 3}, "`retries` is not a key"),
    ],
)
def test_components_are_checked(data, message):
    with pytest.raises(SpecError, match=message):
        parse_component(data)


def test_a_schema_says_the_type_of_a_component():
    schema = "https://azuremlschemas.azureedge.net/latest/pipelineComponent.schema.json"
    jobs = {"a": {"command": "x"}}
    assert parse_component({"$schema": schema, "jobs": jobs}).type == "pipeline"
