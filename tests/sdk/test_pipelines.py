"""Pipelines in Python: `@pipeline`, components, steps that are named by their variables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks import (
    Client,
    Environment,
    Input,
    Output,
    PipelineJob,
    SpecError,
    command,
    load_component,
    load_job,
)
from allranks.dsl import pipeline
from allranks.errors import UsageError
from allranks.spec.pipeline.steps import steps_of
from allranks.sweep import Choice
from tests.support import Allranks

TRAIN = """\
name: train
version: 1
type: command
inputs:
  data: {type: uri_folder}
  rate: {type: number, default: 0.1}
  note: {type: string, optional: true}
outputs: {model: {type: uri_folder}}
code: src
command: python say.py ${{inputs.data}} ${{inputs.rate}} ${{outputs.model}} $[[${{inputs.note}}]]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a b"
    (folder / "src").mkdir(parents=True)
    (folder / "src/say.py").write_text(
        "import pathlib, sys\nprint(sys.argv[2:3], *sys.argv[4:])\n"
        "pathlib.Path(sys.argv[3], 'm').write_text(sys.argv[2])\n"
    )
    (folder / "train.yml").write_text(TRAIN)
    return folder


prep = command(
    command="echo ${{inputs.n}} > ${{outputs.data}}/x",
    inputs={"n": 1},
    outputs={"data": Output()},
)


def test_a_function_becomes_a_pipeline(folder: Path):
    train = load_component(folder / "train.yml")

    @pipeline(default_compute="local", force_rerun=True, description="two steps", tags={"a": "b"})
    def training(rate, raw, n=3, note=None):
        first = prep(n=n)
        first.environment_variables = {"A": "1"}
        again = train(data=first.outputs.data, rate=rate, note=note)
        again.resources = {"instance_count": 2}
        train(data=raw, rate=0.5).compute = "other"
        return {"model": again.outputs.model}

    job = training(0.25, Input(type="uri_folder", path="/data"))
    assert isinstance(job, PipelineJob)
    assert (job.display_name, job.description, job.tags) == ("training", "two steps", {"a": "b"})
    assert (job.settings.default_compute, job.settings.force_rerun) == ("local", True)
    assert [*job.jobs] == ["first", "again", "train"]
    assert job.outputs.keys() == {"model"}
    steps = steps_of(PipelineJob.parse({**job.to_dict(), "name": "p"}))
    assert steps["first"].inputs == {"n": 3}
    assert steps["first"].job["environment_variables"] == {"A": "1"}
    assert steps["again"].inputs["rate"] == 0.25
    assert "note" not in steps["again"].inputs
    assert steps["again"].bound == {"model": "model"}
    assert steps["again"].job["resources"] == {"instance_count": 2}
    assert steps["train"].inputs["data"]["path"] == "/data"
    assert steps["train"].job["compute"] == "other"
    assert steps["train"].after == ()
    assert steps["again"].after == ("first",)
    # The same in a file.
    assert load_job(job.to_yaml()) == job
    # Each call builds another pipeline.
    assert training(0.5, "/data", note="x").jobs["again"]["inputs"].keys() == {
        "data",
        "rate",
        "note",
    }


def test_the_name_in_the_decorator_is_the_components():
    @pipeline(name="steps", version="3", experiment_name="e")
    def once():
        command(command="true")()

    made = once()
    assert (made.name, made.experiment_name) == (None, "e")
    component = once.component()
    assert (component["name"], component["version"]) == ("steps", "3")


def test_a_pipeline_without_its_inputs_is_a_component():
    @pipeline
    def needs(rate: int, data: str):
        command(command="true")()

    for component in (needs().component, needs._pipeline_builder.build()):
        assert (component.name, [*component.spec.inputs]) == ("needs", ["rate", "data"])
    with pytest.raises(UsageError, match="missing a required argument: 'data'"):
        needs(1)
    with pytest.raises(UsageError, match="missing a required argument"):
        Client().jobs.create_or_update(needs())

    @pipeline
    def outer():
        needs()

    with pytest.raises(UsageError, match="missing a required argument"):
        outer()


def test_a_key_of_a_component_is_changed(folder: Path):
    train = load_component(folder / "train.yml")
    train.version = "7"
    train.environment = Environment(name="own", image="python:3.11")
    assert train.version == "7"
    assert train.description is None
    train.description = "trains"
    assert train.description == "trains"
    made = train.spec.environment
    assert (made.name, made.image) == ("own", "python:3.11")
    with pytest.raises(SpecError, match="envronment"):
        train.envronment = "current"
    assert train.spec.environment == made


def test_pipelines_in_pipelines_and_sweeps(folder: Path):
    train = load_component(folder / "train.yml")

    @pipeline
    def inner(data):
        best = train(data=data)
        return {"best": best.outputs.model}

    @pipeline()
    def outer():
        data = prep(n=2)
        nested = inner(data=data.outputs.data)
        swept = train(data=data.outputs.data, rate=Choice([0.1, 0.2])).sweep(
            primary_metric="acc",
            goal="maximize",
            sampling_algorithm="grid",
            max_total_trials=2,
        )
        loop = command(command="echo ${{inputs.x}}", inputs={"x": 1})
        more = loop(x=Choice([1, 2])).sweep(primary_metric="y", goal="minimize", max_total_trials=2)
        more.display_name = "more"
        last = train(data=nested.outputs.best)
        last.outputs.model = Output(mode="upload")
        train(data=swept.outputs.model)

    steps = steps_of(PipelineJob.parse({**outer().to_dict(), "name": "p"}))
    assert [*steps] == ["data", "more", "nested", "swept", "last", "train"]
    assert steps["nested"].type == "pipeline"
    assert steps["swept"].job["search_space"]["rate"]["values"] == [0.1, 0.2]
    assert "${{search_space.rate}}" in steps["swept"].job["trial"]["command"]
    assert "${{search_space.x}}" in steps["more"].job["trial"]["command"]
    assert steps["last"].outputs["model"] == {"type": "uri_folder", "mode": "upload"}
    assert steps["train"].after == ("swept",)


def test_what_is_wrong_is_said(folder: Path):
    train = load_component(folder / "train.yml")
    with pytest.raises(UsageError, match="outside of a pipeline"):
        train(data="/x")
    assert prep(n=4).inputs["n"] == 4  # a command outside of a pipeline is a job

    @pipeline
    def wrong(kind):
        step = train(data="/x")
        if str(kind) == "nothing":
            return "x"
        if kind == "${{parent.inputs.kind}}":
            train(dta=1)
        return {"m": step.outputs.modle}

    with pytest.raises(UsageError, match="the component train has no input 'dta'"):
        wrong("input")
    with pytest.raises(UsageError, match="missing a required argument"):
        wrong().settings.default_compute = "local"
    with pytest.raises(UsageError, match=r"has \* or \*\* parameters"):
        pipeline(lambda *args: None)

    @pipeline
    def no_output():
        return {"m": train(data="/x").outputs.modle}

    with pytest.raises(AttributeError, match="output 'modle' not found; the outputs are: model"):
        no_output()

    @pipeline
    def no_mapping():
        return train(data="/x").outputs.model

    with pytest.raises(UsageError, match="must return outputs of steps by name"):
        no_mapping()

    @pipeline
    def no_key():
        train(data="/x").computee = "x"

    with pytest.raises(AttributeError, match="a step has no key 'computee'"):
        no_key()
    (folder / "bad.yml").write_text("command: x\ninputs: {a: {type: nubmer}}\n")
    with pytest.raises(SpecError, match="must be one of"):
        load_component(folder / "bad.yml")


@pytest.fixture
def client(home: Path, monkeypatch: pytest.MonkeyPatch, allranks: Allranks) -> Iterator[Client]:
    monkeypatch.setenv("ALLRANKS_HOME", str(home))
    monkeypatch.delenv("ALLRANKS_SERVER", raising=False)
    return Client()


@pytest.mark.slow
def test_it_runs_with_files_and_registered_components(client: Client, folder: Path, tmp_path: Path):
    train = load_component(folder / "train.yml")
    registered = client.components.create_or_update(train)
    assert (registered.name, registered.version) == ("train", "1")
    assert [each.version for each in client.components.list("train")] == ["1"]
    latest = client.components.get("train")

    @pipeline
    def both(rate):
        data = prep(n=7)
        one = train(data=data.outputs.data, rate=rate, note="hello")
        two = latest(data=one.outputs.model)
        return {"model": two.outputs.model}

    made = client.jobs.create_or_update(both(rate=0.75))
    done = client.jobs.get(made.name).wait()
    assert (done.status, done.type) == ("Completed", "pipeline")
    assert {name: step["status"] for name, step in done.steps.items()} == dict.fromkeys(
        ("data", "one", "two"), "Completed"
    )
    got = client.jobs.download(made.name, tmp_path / "got")
    assert (got / "named-outputs/model/m").read_text() == "0.1"
    again = client.create_or_update(both(rate=0.75)).wait()
    assert {each["reused"] for each in again.steps.values()} == {
        f"{made.name}_{step}" for step in ("data", "one", "two")
    }
