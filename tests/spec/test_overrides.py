"""`--set` sets what has an effect, and refuses the rest by name."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allranks.errors import SpecError
from allranks.spec.yaml.load import loads, override_keys
from allranks.spec.yaml.unused_overrides import unread_inputs

JOB = """\
command: python train.py --lr ${{inputs.lr}} $[[--extra ${{inputs.extra}}]] "$AZURE_ML_INPUT_more"
inputs: {lr: 0.5, data: {path: /data}}
outputs: {model: }
status: Completed
environment_variables: {RATE: "$[[${{inputs.rate}}]]", WHERE: "${{outputs.model}}"}
distribution: {type: PyTorch, process_count_per_instance: 2, added_property: kept}
resources: {properties: {theirs: {a: 1}}}
"""
ENGINES = ("local", "slurm")


def refused(*overrides: str) -> list[tuple[str | None, str | None]]:
    with pytest.raises(SpecError) as caught:
        loads(JOB, overrides, file="job.yml", engines=ENGINES)
    assert caught.value.file == "job.yml"
    assert all(problem.line is None for problem in caught.value.problems)
    return [(problem.where, problem.hint) for problem in caught.value.problems]


@pytest.mark.parametrize(
    ("override", "where", "hint"),
    [
        ("inputs.lrr=0.7", "inputs.lrr", "did you mean `lr`?"),
        ("inputs.lrr=", "inputs.lrr", "did you mean `lr`?"),
        ("inputs.dat.path=/x", "inputs.dat", "did you mean `data`?"),
        ("inputs={lr: 1, data: {path: /x}, lrr: 2}", "inputs.lrr", "did you mean `lr`?"),
        ("inputs.zzz=1", "inputs.zzz", "to add one, declare it in the file under `inputs`"),
        ("outputs.mdoel.path=/x", "outputs.mdoel", "did you mean `model`?"),
        ("outputs.zzz={}", "outputs.zzz", "`model`"),
        ("status=Failed", "status", "did you mean `state`?"),
        ("parameters.lr=1", "parameters", "leave it out"),
        ("tgas=", "tgas", "did you mean `tags`?"),
        ("resources.properties.lokal.cpus=1", "resources.properties.lokal", "`local`"),
        ("resources.properties.zzz=1", "resources.properties.zzz", "local, slurm"),
        ("distribution.process_count_per_instace=4", "distribution.process_count_per_instace",
         "did you mean `process_count_per_instance`?"),
        ("distribution.zzz=4", "distribution.zzz", "known here: `process_count_per_instance`"),
        # The model finds these, whoever sets them.
        ("limits.timeot=60", "limits.timeot", "did you mean `timeout`?"),
        ("inputs.data.pth=/x", "inputs.data.pth", "did you mean `path`?"),
        ("comand=x", "comand", "did you mean `command`?"),
    ],
)  # fmt: skip
def test_a_name_that_nothing_reads_is_refused(override: str, where: str, hint: str) -> None:
    ((found, said),) = refused(override)
    assert found == where
    assert hint in (said or "")


def test_everything_wrong_is_told_at_once() -> None:
    found = refused("inputs.lrr=1", "inputs.zz.path=a", "inputs.zz.mode=direct", "outputs.m={}")
    assert [where for where, _ in found] == ["inputs.lrr", "inputs.zz", "outputs.m"]


def test_what_has_an_effect_is_set() -> None:
    overrides = (
        "inputs.lr=0.7",
        "inputs.extra=1",
        "inputs.more.path=/more",
        "inputs.rate=3",
        "outputs.model.path=/there",
        "limits.timeout=60",
        "environment_variables.NEW=1",
        "tags.a=b",
        "properties.p=q",
        "metrics.loss=loss (.*)",
        "resources.properties.slurm.partition=x",
        "distribution.process_count_per_instance=4",
        "distribution.added_property=other",
        "resources.properties.theirs.b=2",
        "display_name=",
    )
    job = loads(JOB, overrides, engines=ENGINES)
    assert job.inputs["lr"] == 0.7
    assert (job.inputs["extra"], job.inputs["rate"]) == (1, 3)
    assert job.outputs["model"].path == "/there"
    assert (job.tags, job.environment_variables["NEW"]) == ({"a": "b"}, "1")


def test_a_text_stays_a_text() -> None:
    file = 'command: train ${{inputs.version}}\ninputs: {version: "1.10"}\n'
    overrides = ['environment_variables.CONFIG={"k": [1]}', "tags.t=[a]", "inputs.version=3.10"]
    job = loads(file, overrides)
    assert job.environment_variables["CONFIG"] == '{"k": [1]}'
    assert (job.tags["t"], job.inputs["version"]) == ("[a]", "3.10")


def test_what_is_always_a_text_stays_as_typed_on_the_command_line() -> None:
    spec: dict[str, Any] = {"command": "train ${{inputs.n}} ${{inputs.t}}"}
    sets = ["environment_variables.ID=007", "tags.v=1.10", "inputs.n=007", "inputs.t='007'"]
    override_keys(spec, {}, sets, typed=True)
    # As `run` sends it.
    sent = json.loads(json.dumps(spec))
    assert (sent["environment_variables"], sent["tags"]) == ({"ID": "007"}, {"v": "1.10"})
    assert sent["inputs"] == {"n": 7, "t": "007"}


def test_a_name_that_the_new_command_refers_to_is_an_input() -> None:
    job = loads(JOB, ["command=train ${{inputs.lr2}}", "inputs.lr2=1"])
    assert job.inputs["lr2"] == 1


def test_what_was_read_from_a_file_without_an_override_stays_as_it_was() -> None:
    assert loads(JOB).distribution.added_property == "kept"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("command", "override", "hint"),
    [
        ("train $[[--lr ${{inputs.lr}}]]", "inputs.lrr=0.7", "did you mean `lr`?"),
        ("train", "inputs.dta.mode=download", "did you mean `data`?"),
        ("train", "outputs.model={}", "add it with -o"),
    ],
)
def test_a_typed_job_is_held_to_its_own_words(command: str, override: str, hint: str) -> None:
    spec = {"command": command, "inputs": {"data": {"path": "/data"}}}
    with pytest.raises(SpecError) as caught:
        override_keys(spec, {}, [override], typed=True)
    assert hint in str(caught.value.problems[0].hint)


def test_a_typed_job_declares_by_set_what_its_command_mentions() -> None:
    spec = {"command": "train ${{inputs.lr}} $AZUREML_PARAMETER_seed"}
    override_keys(spec, {}, ["inputs.lr=5", "inputs.seed=7"], typed=True)
    assert spec["inputs"] == {"lr": 5, "seed": 7}


@pytest.mark.parametrize(
    ("command", "name", "literal"),
    [
        ("train --lr .03 --wd 0", "lr", "--lr .03"),
        ("train --lr=.03", "lr", "--lr=.03"),
        ("train -lr -1", "lr", "-lr -1"),
        ("python -m t --weight-decay \\\n 1 && x --weight-decay 0.1;", "weight_decay",
         "--weight-decay 1"),
        ("train optim.lr=1 lr=.5", "lr", "lr=.5"),
        ("train ++lr=.5", "lr", "++lr=.5"),
        ("train --name 'a b' --x", "name", "--name 'a b'"),
        ('train --name "a b"', "name", '--name "a b"'),
        ("train --lr ${{inputs.rate}}|tee", "lr", "--lr ${{inputs.rate}}"),
        ("train --lr --wd 1", "lr", None),
        ("train --lrr 1 x--lr 1 --lr", "lr", None),
        ("train lr 1", "lr", None),
    ],
)  # fmt: skip
def test_the_literal_that_stands_in_the_command_is_named(
    command: str, name: str, literal: str | None
) -> None:
    spec = {"command": command}
    with pytest.raises(SpecError) as caught:
        override_keys(spec, {}, [f"inputs.{name}=1"], typed=True)
    (problem,) = caught.value.problems
    assert (problem.message, problem.where) == (f"the job has no input `{name}`", f"inputs.{name}")
    expected = f"the command says `{literal}`" if literal else "its inputs: none; to add one"
    assert expected in str(problem.hint)
    declared = {"command": command, "inputs": {name: 1}}
    (note,) = unread_inputs(declared, [f"inputs.{name}=1", f"inputs.{name}=2", "tags.a=b"])
    assert ("the command says" in note) == bool(literal)
    assert (literal or f"AZUREML_PARAMETER_{name}") in note


@pytest.mark.parametrize(
    "read",
    [
        {"command": "train ${{ inputs.lr }}"},
        {"command": "train $[[--lr ${{inputs.lr}}]]"},
        {"command": "train $AZUREML_PARAMETER_lr"},
        {"command": "train", "environment_variables": {"LR": "${{inputs.lr}}"}},
        {"trial": {"command": "train ${{inputs.lr}}"}},
        {"trial": "trial.yml"},
        {"component": "azureml:train:1"},
        {"jobs": {"a": {"component": "a.yml", "inputs": {"x": "${{parent.inputs.lr}}"}}}},
    ],
)
def test_an_input_that_is_read_needs_no_note(read: dict[str, Any]) -> None:
    assert unread_inputs({**read, "inputs": {"lr": 1}}, ["inputs.lr=1"]) == []


def test_an_input_whose_name_begins_like_another_is_not_read() -> None:
    job = {"command": "train ${{inputs.lr_end}}", "inputs": {"lr": {"path": "/x"}, "lr_end": 1}}
    (note,) = unread_inputs(job, ["inputs.lr.path=/y"])
    assert "AZURE_ML_INPUT_lr" in note


def test_inputs_of_steps() -> None:
    steps = {
        "a": {"command": "train --lr 1 ${{inputs.n}}", "inputs": {"n": 1, "lr": 2}},
        "b": {"component": "b.yml"},
        "c": {"jobs": {"d": {"command": "train --x 1"}}},
    }
    spec = {"type": "pipeline", "jobs": steps}
    override_keys(spec, {}, ["jobs.a.inputs.n=2", "jobs.b.inputs.x=1", "jobs.e.inputs.x=1"])
    with pytest.raises(SpecError) as caught:
        override_keys(spec, {}, ["jobs.c.jobs.d.inputs.x=1"])
    (problem,) = caught.value.problems
    assert problem.where == "jobs.c.jobs.d.inputs.x"
    assert "the command says `--x 1`" in str(problem.hint)
    (note,) = unread_inputs(spec, ["jobs.a.inputs.n=2", "jobs.a.inputs.lr=2", "jobs.b.inputs.x=1"])
    assert note == "nothing in the command reads the input lr: the command says --lr 1"


def test_a_text_stays_text_in_every_section() -> None:
    job = json.dumps(
        {
            "type": "sweep",
            "inputs": {"v": "1.10"},
            "trial": {"command": "echo ${{inputs.v}} ${{search_space.a}}"},
            "search_space": {"a": {"type": "choice", "values": [1]}},
            "objective": {"goal": "minimize", "primary_metric": "loss"},
            "limits": {"max_total_trials": 1},
        }
    )
    sets = [
        "inputs.v=3.10",
        "trial.environment_variables.A=0755",
        "trial.environment_variables.B={",
    ]
    data = loads(job, sets).to_dict()
    assert data["inputs"] == {"v": "3.10"}
    assert data["trial"]["environment_variables"] == {"A": "0755", "B": "{"}
    step = {"command": "echo ${{inputs.v}}", "inputs": {"v": "1.10"}}
    job = json.dumps({"type": "pipeline", "jobs": {"a": step}})
    assert loads(job, ["jobs.a.inputs.v=3.10"]).to_dict()["jobs"]["a"]["inputs"] == {"v": "3.10"}


def test_a_text_within_an_input_stays_a_text() -> None:
    spec: dict[str, Any] = {"command": "ls ${{inputs.x}}", "inputs": {"x": {"path": "2024"}}}
    override_keys(spec, {}, ["inputs.x.path=2025"])
    assert spec["inputs"] == {"x": {"path": "2025"}}
