"""Sweeps in Python, as programs for azure.ai.ml write them."""

from __future__ import annotations

import pytest

from allranks import Client, command, load_job
from allranks.errors import SpecError
from allranks.sweep import (
    BanditPolicy,
    BayesianSamplingAlgorithm,
    Choice,
    LogUniform,
    SweepJob,
    Uniform,
)
from tests.support import environment

SCRIPT = "echo loss $(( ${{inputs.a}} * ${{ inputs.b }} )) of ${{inputs.epochs}}"


@pytest.fixture
def job():
    return command(
        command=SCRIPT,
        inputs={"a": 1, "b": 2, "epochs": 3},
        metrics={"loss": r"loss (\d+)"},
        timeout=60,
    )


def test_inputs_become_parameters(job):
    swept = job(a=Choice([4, 3]), epochs=5)
    sweep = swept(b=Choice(values=[7])).sweep(
        primary_metric="loss", goal="Minimize", sampling_algorithm="grid", max_concurrent_trials=2
    )
    assert sweep.trial.command == (
        "echo loss $(( ${{search_space.a}} * ${{ search_space.b }} )) of ${{inputs.epochs}}"
    )
    assert dict(sweep.inputs) == {"epochs": 5}
    assert {name: each.values for name, each in sweep.search_space.items()} == {
        "a": (4, 3),
        "b": (7,),
    }
    limits = sweep.limits
    assert (limits.max_total_trials, limits.max_concurrent_trials) == (2, 2)
    assert limits.trial_timeout == 60
    assert dict(job.inputs) == {"a": 1, "b": 2, "epochs": 3}, "the job is unchanged"
    assert SweepJob.parse(sweep.to_dict()) == sweep


def test_keywords_of_azure(job):
    sweep = job(a=Uniform(min_value=0, max_value=1)).sweep(
        primary_metric="loss",
        goal="maximize",
        sampling_algorithm=BayesianSamplingAlgorithm(seed=3),
        search_space={"lr": LogUniform(min_value=-6, max_value=-1)},
        max_total_trials=9,
        timeout=100,
        trial_timeout=10,
        compute="cpu-cluster",
        display_name="mine",
    )
    assert (sweep.compute, sweep.display_name, sweep.limits.timeout) == ("cpu-cluster", "mine", 100)
    assert (sweep.sampling_algorithm.type, sweep.limits.trial_timeout) == ("bayesian", 10)
    assert {*sweep.search_space} == {"a", "lr"}
    stopped = job(a=Choice([1])).sweep(
        primary_metric="loss",
        goal="minimize",
        max_total_trials=1,
        early_termination_policy=BanditPolicy(slack_factor=0.1, evaluation_interval=2),
    )
    assert stopped.early_termination == BanditPolicy(slack_factor=0.1, evaluation_interval=2)


def test_wrong_keywords_are_refused(job):
    swept = job(a=Choice([1]))
    for keywords, message in (
        ({"goal": "best"}, "objective.goal"),
        ({"goal": "minimize", "max_total_trials": 0}, "limits.max_total_trials"),
        ({"goal": "minimize", "max_total_trials": 1, "nosuch": 1}, "nosuch"),
    ):
        with pytest.raises(SpecError, match=message):
            swept.sweep(primary_metric="loss", **keywords)
    with pytest.raises(SpecError, match="search_space"):
        job.sweep(primary_metric="loss", goal="minimize", max_total_trials=1)
    # Azure's programs set the limits afterwards.
    later = swept.sweep(primary_metric="loss", goal="minimize")
    with pytest.raises(SpecError, match="the number of trials is missing"):
        later.to_dict()
    with pytest.raises(SpecError, match="max_total_trials"):
        later.set_limits(max_total_trials=0)
    later.set_limits(max_total_trials=3, timeout=60)
    later.set_limits(max_concurrent_trials=2)
    limits = {"max_total_trials": 3, "max_concurrent_trials": 2, "timeout": 60.0}
    assert limits.items() <= later.to_dict()["limits"].items()
    with pytest.raises(SpecError, match="min_value"):
        Uniform(min_value=2, max_value=1)


def test_a_file_is_a_sweep(tmp_path, job):
    sweep = job(a=Choice([1, 2])).sweep(primary_metric="loss", goal="minimize", max_total_trials=2)
    sweep.to_yaml(tmp_path / "s.yml")
    assert load_job(tmp_path / "s.yml") == sweep


@pytest.mark.medium
def test_two_lines_to_the_best_parameters(shared_home, monkeypatch, code, job):
    for name in ("ALLRANKS_HOME", "VIRTUAL_ENV"):
        monkeypatch.setenv(name, environment(shared_home)[name])
    monkeypatch.chdir(code)
    sweep = job(a=Choice([4, 3])).sweep(
        primary_metric="loss", goal="minimize", sampling_algorithm="grid"
    )
    best = Client().jobs.create_or_update(sweep).wait().best
    assert (best["value"], best["parameters"]) == (6, {"a": 3})


def test_values_of_distributions_in_their_order():
    assert Uniform(0.1, 0.9) == Uniform(min_value=0.1, max_value=0.9)
    assert Choice([1, 2]) == Choice(values=[1, 2])
    with pytest.raises(TypeError, match="Uniform takes 2 values, not 3"):
        Uniform(0.1, 0.2, 0.3)
