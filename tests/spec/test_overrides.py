"""`--set` sets what has an effect, and refuses the rest by name."""

from __future__ import annotations

import pytest

from allranks.errors import SpecError
from allranks.spec.yaml.load import loads, override_keys

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


def test_a_typed_job_declares_its_literals_by_set() -> None:
    spec = {"command": "train"}
    override_keys(spec, {}, ["inputs.lr=5", "inputs.seed=7"], typed=True)
    assert spec["inputs"] == {"lr": 5, "seed": 7}
