"""Sweep files: what is read, and what is refused with its line."""

from __future__ import annotations

import pytest

from allranks.errors import SpecError
from allranks.spec.sweep.job import SweepJob
from allranks.spec.yaml.load import loads

HEAD = """\
type: sweep
trial: {command: 'echo ${{search_space.x}}'}
"""
TAIL = """
objective: {goal: Minimize, primary_metric: loss}
limits: {max_total_trials: 3}
"""
SPACE = "search_space: {x: {type: choice, values: [1, two, 3.5]}}"


def test_a_sweep_is_read_and_written_back():
    sweep = loads(f"$schema: https://x/sweepJob.schema.json\n{HEAD[12:]}{SPACE}{TAIL}")
    assert isinstance(sweep, SweepJob)
    assert sweep.sampling_algorithm.type == "random"
    assert SweepJob.parse(sweep.to_dict()) == sweep
    assert loads(sweep.to_yaml()) == sweep


def test_a_trial_is_a_command_job():
    more = """
trial:
  command: python t.py ${{search_space.x}} ${{inputs.data}}
  code: ./src
  distribution: {type: PyTorch, process_count_per_instance: 2}
  resources: {instance_count: 2}
experiment_name: e
compute: gpu
inputs: {data: {type: uri_folder, path: /data}, n: 4}
outputs: {model: {}}
queue_settings: {job_tier: Spot}
limits: {max_total_trials: 3, trial_timeout: 60}
"""
    text = f"type: sweep\n{SPACE}\nobjective: {{goal: minimize, primary_metric: loss}}{more}"
    sweep = loads(text)
    assert isinstance(sweep, SweepJob)
    trial = sweep.trial_spec("s_3", {"x": 1})
    assert trial == {
        "type": "command",
        "name": "s_3",
        "parent_job_name": None,
        "search_space": {"x": 1},
        "command": "python t.py ${{search_space.x}} ${{inputs.data}}",
        "code": "./src",
        "distribution": {"type": "pytorch", "process_count_per_instance": 2},
        "resources": {"instance_count": 2},
        "experiment_name": "e",
        "compute": "gpu",
        "inputs": {"data": {"type": "uri_folder", "path": "/data"}, "n": 4},
        "outputs": {"model": {"type": "uri_folder"}},
        "queue_settings": {"job_tier": "spot"},
        "limits": {"timeout": 60.0},
        "retry": {"max_attempts": 3, "on": ["node_lost", "preempted"]},
    }


@pytest.mark.parametrize(
    ("text", "where", "line", "message"),
    [
        (f"{HEAD}search_space: {{}}{TAIL}", "search_space", 3, "must not be empty"),
        (f"{HEAD}search_space: {{x: 3}}{TAIL}", "search_space.x", 3, "must be a mapping"),
        (
            f"{HEAD}search_space:\n  x: {{type: choice, values: []}}{TAIL}",
            "search_space.x.values",
            4,
            "at least one value",
        ),
        (
            f"{HEAD}search_space:\n  x: {{type: choice, values: [true]}}{TAIL}",
            "search_space.x.values",
            4,
            "truth value",
        ),
        (
            f"{HEAD}search_space:\n  x: {{type: choise, values: [1]}}{TAIL}",
            "search_space.x.type",
            4,
            "must be one of",
        ),
        (
            f"{HEAD}search_space:\n  x: {{type: uniform, min_value: 2, max_value: 1}}{TAIL}",
            "search_space.x",
            4,
            "more than `max_value`",
        ),
        (
            f"{HEAD}search_space:\n  x: {{type: uniform, min_value: 0, max_value: .inf}}{TAIL}",
            "search_space.x.max_value",
            4,
            "must be a number",
        ),
        (
            f"{HEAD}search_space:\n  x: {{type: quniform, min_value: 0, max_value: 1, q: 0}}{TAIL}",
            "search_space.x.q",
            4,
            "more than 0",
        ),
        (
            f"{HEAD}search_space:\n  x: {{type: randint, upper: 0}}{TAIL}",
            "search_space.x.upper",
            4,
            "at least 1",
        ),
        (
            f"{HEAD}{SPACE}\nsampling_algorithm: grit{TAIL}",
            "sampling_algorithm.type",
            4,
            "must be one of",
        ),
        (
            f"{HEAD}search_space: {{x: {{type: randint, upper: 3}}}}\n"
            f"sampling_algorithm: grid{TAIL}",
            "search_space.x",
            3,
            "a grid needs choices",
        ),
        (
            f"{HEAD}{SPACE}\nearly_termination: {{type: bandit}}{TAIL}",
            "early_termination",
            4,
            "neither is given",
        ),
        (
            f"{HEAD}{SPACE}\nearly_termination: {{type: bandit, slack_factor: 1, slack_amount: 1}}"
            f"{TAIL}",
            "early_termination",
            4,
            "both are given",
        ),
        (
            f"{HEAD}{SPACE}\nsampling_algorithm: bayesian\n"
            f"early_termination: {{type: median_stopping}}{TAIL}",
            "early_termination",
            5,
            "bayesian sampling has no early termination",
        ),
        (
            f"type: sweep\ntrial: {{command: 'echo ${{{{search_space.y}}}}'}}\n{SPACE}{TAIL}",
            "trial.command",
            2,
            "`${{search_space.y}}` is not defined",
        ),
        (
            f"type: sweep\ntrial: {{comand: x, command: y}}\n{SPACE}{TAIL}",
            "trial.comand",
            2,
            "is not a key",
        ),
        (f"type: sweep\n{SPACE}{TAIL}", "trial", None, "`trial` is required"),
    ],
)
def test_what_is_refused(text: str, where: str, line: int | None, message: str) -> None:
    with pytest.raises(SpecError) as caught:
        loads(text)
    (problem,) = caught.value.problems
    assert (problem.where, problem.line) == (where, line)
    assert message in problem.message
    assert problem.hint


def test_a_reference_to_another_parameter_gets_the_nearest_as_hint():
    text = HEAD.replace("x}}", "xs}}") + SPACE + TAIL
    with pytest.raises(SpecError) as caught:
        loads(text)
    assert "search_space.x" in caught.value.problems[0].hint
