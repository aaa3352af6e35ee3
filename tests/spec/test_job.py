# ruff: noqa: E501 - in a table, one case to a line
"""Jobs: what is accepted, what it becomes, and what is said about the rest."""

from __future__ import annotations

import json
from typing import Any

import pytest

from allranks.errors import Problem, SpecError
from allranks.spec.job import CommandJob, parse
from allranks.spec.job_parts import (
    Environment,
    Input,
    MpiDistribution,
    Output,
    PyTorchDistribution,
    RayDistribution,
    TensorFlowDistribution,
)
from allranks.spec.yaml.load import dump, loads, read

SCHEMA = "https://azuremlschemas.azureedge.net/latest/"
FULL = f"""
$schema: {SCHEMA}commandJob.schema.json
type: Command
name: run-1.a_b
display_name: "Ünï: code"
experiment_name: first
tags: {{a: 1.10, b: true, c: }}
command: >-
  python train.py --lr ${{{{inputs.lr}}}} --data ${{{{ inputs.data }}}}
  $[[--warmup ${{{{inputs.warmup}}}}]] --out ${{{{outputs.model}}}} --run ${{{{name}}}}
code: ./src
environment: {{image: "ubuntu:22.04", conda_file: {{dependencies: [pip, python=3.10]}}, pip: [torch]}}
environment_variables: {{A: true, B: 1, C: , D: 007, E: yes, F: 2024-01-01}}
compute: azureml:gpu
resources:
  instance_count: 2
  shm_size: 2g
  locations: [west, east]
  properties: {{slurm: {{time: 007}}}}
  gpus_per_instance: 4
distribution: {{type: PyTorch, process_count_per_instance: 4, added_property: 1.5}}
limits: {{timeout: 3600}}
inputs:
  lr: 1e-3
  n: 8
  flag: true
  text: yes
  data: {{type: UriFolder, path: ./data, mode: RoMount}}
outputs: {{model: , logs: {{}}, one: {{type: uri_file, mode: upload, version: 1.10}}}}
services: {{j: {{type: jupyter_lab}}}}
identity: {{type: user_identity}}
queue_settings: {{job_tier: Spot, priority: High}}
metrics: {{loss: 'loss=([0-9.]+)'}}
state: warm-1
warm: [torch, torch.distributed]
retry: {{max_attempts: 3, on: [NodeLost, user]}}
hang_timeout: 60
"""


def told(text: str) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        loads(text, file="job.yml")
    assert caught.value.file == "job.yml"
    for problem in caught.value.problems:
        assert problem.hint
        assert "pydantic" not in problem.message
        assert "http" not in problem.message
        assert "\n" not in problem.message
    return list(caught.value.problems)


def test_a_full_job() -> None:
    job = loads(FULL)
    assert job.tags == {"a": "1.10", "b": "True", "c": ""}
    variables = {"A": "True", "B": "1", "C": "", "D": "007", "E": "yes", "F": "2024-01-01"}
    assert job.environment_variables == variables
    assert job.inputs["data"] == Input(path="./data")
    assert {k: job.inputs[k] for k in ("lr", "n", "flag", "text")} == {
        "lr": 0.001,
        "n": 8,
        "flag": True,
        "text": "yes",
    }
    assert [type(job.inputs[k]) for k in ("lr", "n", "flag")] == [float, int, bool]
    assert job.outputs["model"] == job.outputs["logs"] == Output()
    assert job.outputs["one"].version == "1.10"
    assert isinstance(job.environment, Environment)
    assert isinstance(job.distribution, PyTorchDistribution)
    assert job.distribution.model_extra == {"added_property": 1.5}
    assert job.queue_settings.job_tier == "spot"
    assert job.retry.on == ("node_lost", "user")
    assert job.warm == ("torch", "torch.distributed")


def test_round_trips() -> None:
    job = loads(FULL)
    data = job.to_dict()
    assert parse(json.loads(json.dumps(data))) == job
    assert loads(dump(job)) == job
    assert data["resources"]["properties"] == {"slurm": {"time": 7}}
    assert "retry" not in CommandJob.parse({"command": "x"}).to_dict()


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("OpenMPI", "openmpi"),
        ("open-mpi", "openmpi"),
        ("MPICH", "mpich"),
        ("IntelMPI", "intel"),
        ("/opt/x/bin/mpirun", "/opt/x/bin/mpirun"),
    ],
)
def test_an_mpi_by_any_of_its_names(said: str, meant: str) -> None:
    job = parse({"command": "x", "distribution": {"type": "mpi", "implementation": said}})
    assert job.to_dict()["distribution"]["implementation"] == meant


@pytest.mark.parametrize(
    "distribution",
    [PyTorchDistribution(), MpiDistribution(), RayDistribution(port=1), TensorFlowDistribution()],
)
def test_a_distribution_of_defaults_keeps_its_type(distribution: Any) -> None:
    job = parse({"command": "x", "distribution": distribution})
    assert parse(job.to_dict()).distribution == distribution


def test_defaults() -> None:
    job = parse({"command": "x", "tags": None})
    assert (job.resources.instance_count, job.retry.max_attempts) == (1, 1)
    assert job.retry.on == ("node_lost", "preempted", "hang", "user", "setup")
    assert job.distribution is job.environment is job.limits.timeout is None
    assert job.to_dict() == {"command": "x"}


@pytest.mark.parametrize(
    ("text", "where", "line", "message", "hint"),
    [
        ("command: x\ncomand: y", "comand", 2, "`comand` is not a key", "did you mean `command`?"),
        ("name: x", "command", None, "`command` is required", "add `command: …`"),
        ("command: ''", "command", 1, "must not be empty", "write"),
        ("command: x\ninstance_count: 2", "instance_count", 2, "not a key", "`resources.instance"),
        (
            "command: x\nresources:\n  instance_cout: 2",
            "resources.instance_cout",
            3,
            "`instance_cout` is not a key in `resources`",
            "did you mean `instance_count`?",
        ),
        (
            "command: x\nresources: {instance_count: 0}",
            "resources.instance_count",
            2,
            "at least 1",
            "",
        ),
        (
            "command: x\nresources: {instance_count: true}",
            "resources.instance_count",
            2,
            "number",
            "",
        ),
        ("command: x\nresources: {instance_count: a}", "resources.instance_count", 2, "whole", ""),
        ("command: x\nlimits: {timeout: 0}", "limits.timeout", 2, "more than 0", ""),
        (
            "command: x\nlimits: {timeout: soon}",
            "limits.timeout",
            2,
            "must be a duration",
            "30m",
        ),
        ("command: x\ninputs:\n  a: [1]", "inputs.a", 3, "text, a number", "`a: …`"),
        ("command: x\ninputs:\n  a:", "inputs.a", 3, "not nothing", "remove it"),
        ("command: x\ninputs:\n  a: {pat: 1, path: y}", "inputs.a.pat", 3, "not a key", "`path`"),
        (
            "command: x\ninputs:\n  a: {type: x, path: y}",
            "inputs.a.type",
            3,
            "one of `uri_f",
            "use",
        ),
        ("command: x\ninputs:\n  a: {}", "inputs.a.path", 3, "`path` is required", "add `path"),
        ("command: x\ninputs:\n  a b: 1", "inputs.a b", 3, "letters, digits", "`my-data`"),
        ("command: x\ninputs:\n  ä: 1", "inputs.ä", 3, "letters, digits", "`my-data`"),
        ("command: x\noutputs:\n  o: p", "outputs.o", 3, "a mapping of keys", "below `o:`"),
        ("command: x\nenvironment_variables: {a: [1]}", "environment_variables.a", 2, "text", ""),
        ("command: x\nenvironment_variables: {a=b: 1}", "environment_variables.a=b", 2, "`=`", ""),
        ('command: x\nenvironment_variables: {"": 1}', "environment_variables.", 2, "empty", ""),
        ("command: x\nenvironment: {imag: y}", "environment.imag", 2, "not a key", "`image`"),
        ("command: x\nenvironment: [y]", "environment", 2, "must be text", ""),
        ("command: x\ndistribution: {type: pytorh}", "distribution.type", 2, "one of", "`pytorch`"),
        ("command: x\ndistribution: {a: 1}", "distribution.type", 2, "`type` is required", "add"),
        (
            "command: x\ndistribution: {type: mpi, implementation: opnmpi}",
            "distribution.implementation",
            2,
            "`opnmpi` is not a supported MPI",
            "`openmpi`, `mpich`",
        ),
        ("command: x\ndistribution: mpi", "distribution", 2, "a mapping of keys", "below"),
        (
            "command: x\ndistribution: {type: mpi, process_count_per_instance: 0}",
            "distribution.process_count_per_instance",
            2,
            "at least 1",
            "",
        ),
        (
            "command: x\ndistribution: {type: tensorflow, worker_count: 3}",
            "distribution.worker_count",
            2,
            "is 3 for 1 instances",
            "`resources.instance_count: 3`",
        ),
        ("command: x\nretry: {on: [hangs]}", "retry.on.0", 2, "must be one of", "`hang`"),
        ("command: x\nwarm: torch", "warm", 2, "must be a list", "`warm: [torch]`"),
        ("command: x\nwarm: [a b]", "warm.0", 2, "Python module", "`import`"),
        ("command: x\nmetrics: {l: 'a('}", "metrics.l", 2, "regular expression", "quotes"),
        ("command: x\nmetrics: {l: 'a'}", "metrics.l", 2, "needs a group", "second group"),
        ("command: x\nmetrics: {l: '(a)(b)(c)'}", "metrics.l", 2, "not 3", "(?:…)"),
        (
            r"""command: x
metrics: {l: 'step (\d+) loss (\S+)'}""",
            "metrics.l",
            2,
            "has the step first",
            r"`step (?P<step>\d+) loss (?P<value>\S+)`",
        ),
        (
            "command: x\nmetrics:\n  kears: builtin",
            "metrics.kears",
            3,
            "built-in metric",
            "`keras`",
        ),
        (
            "command: x\nmetrics:\n  l:\n    pattern: (a)\n    rnk: 1",
            "metrics.l.rnk",
            5,
            "is not a key in `metrics.l`",
            "`rank`",
        ),
        (
            "command: x\nmetrics:\n  l: {pattern: (a), rank: -1}",
            "metrics.l.rank",
            3,
            "the number of a rank",
            "first rank is 0",
        ),
        ('command: "a\\0b"', "command", 1, "NUL", "cannot hold"),
        ("command: x\ntype: pipeline", "command", 1, "`command` is not a key", "`component`"),
        (
            f"$schema: {SCHEMA}pipelineJob.schema.json",
            "jobs",
            None,
            "a pipeline needs steps",
            "jobs",
        ),
        ("type: comand", "type", 1, "not a type of job", "`command`"),
        (
            "command: ${{inputs.lr}}\ninputs: {lx: 1}",
            "command",
            1,
            "is not defined",
            "inputs.lx",
        ),
        ("command: ${{inputs.lr", "command", 1, "not closed", "close it"),
        ("command: ${{search_space.lr}}", "command", 1, "is not defined", "sweep job"),
        ("command: $[[${{parent.inputs.lr}}]]", "command", 1, "is not defined", "pipeline job"),
        ("command: $[[${{outputs.o}}]]", "command", 1, "is not defined", "known here: `name`"),
        (
            "command: x\nenvironment_variables:\n  A: ${{inputs.q}}",
            "environment_variables.A",
            3,
            "is not defined",
            "known here",
        ),
        (
            "command: x\noutputs: {o: {path: 'a/${{nam}}'}}",
            "outputs.o.path",
            2,
            "not defined",
            "{name}",
        ),
    ],
)
def test_what_is_refused(text: str, where: str, line: int | None, message: str, hint: str) -> None:
    (problem,) = told(text)
    assert (problem.where, problem.line) == (where, line)
    assert message in problem.message
    assert hint in str(problem.hint)


@pytest.mark.parametrize(
    "name",
    [
        "a b",
        "a/b",
        "a'b",
        'a"b',
        "a\nb",
        "a\n",
        "$(id)",
        "ä",
        "-a",
        ".a",
        "_a",
        "",
        "a" * 256,
        "..",
    ],
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        parse({"command": "x", "name": name}, {"name": 3})
    (problem,) = caught.value.problems
    assert (problem.where, problem.line) == ("name", 3)
    assert "letters, digits" in problem.message
    assert "paths and URLs" in str(problem.hint)


@pytest.mark.parametrize("name", ["a", "0", "a" * 250, "a.b-c_d"])
def test_names_that_are_fine(name: str) -> None:
    assert parse({"command": "x", "name": name}).name == name


def test_everything_wrong_is_told_at_once() -> None:
    found = told(
        "comand: x\nname: a b\nresources: {instance_count: 0, x: 1}\nlimits: {timeout: -1}"
    )
    assert {p.where for p in found} == {
        "comand",
        "name",
        "resources.instance_count",
        "resources.x",
        "limits.timeout",
    }


@pytest.mark.parametrize("value", [object(), {1, 2}, float("nan")])
def test_values_that_are_no_json_are_refused(value: object) -> None:
    with pytest.raises(SpecError):
        parse({"command": "x", "inputs": {"a": value}})


def test_an_optional_input_may_be_absent() -> None:
    assert loads("command: x $[[--lr ${{inputs.lr}}]]").inputs == {}


def test_the_schema_picks_the_type() -> None:
    assert loads(f"$schema: {SCHEMA}commandJob.schema.json\ncommand: x").type == "command"
    assert loads("$schema: anything\ncommand: x").type == "command"


def test_lines_reach_list_items() -> None:
    assert read("a:\n  - b: 1\n  - 2")[1] == {"a": 1, "a.0": 2, "a.0.b": 2, "a.1": 3}


def test_a_name_leaves_room_for_the_number_of_a_launch():
    assert parse({"command": "true", "name": "a" * 250}).name == "a" * 250
    with pytest.raises(SpecError, match="at most 250 letters"):
        parse({"command": "true", "name": "a" * 251})
