"""Sweep files and what becomes of them: here, and in Azure ML's own client.

A case replaces one line of ``BASE`` by its key, or adds a line.
"""

from __future__ import annotations

from collections.abc import Iterable

BASE = {
    "type": "sweep",
    "trial": "{command: 'python t.py ${{search_space.x}}', environment: 'azureml:e:1'}",
    "search_space": "{x: {type: choice, values: [1, 2]}}",
    "objective": "{goal: minimize, primary_metric: loss}",
    "limits": "{max_total_trials: 4}",
    "compute": "azureml:cpu",
}


def whole(case: str) -> str:
    """The file of a case."""
    key, _, value = case.partition(": ")
    lines = {**BASE, key: value}
    return "".join(f"{name}: {text}\n" for name, text in lines.items() if text != "LEFT OUT")


def _space(*kinds: str) -> Iterable[str]:
    return (f"search_space: {{x: {{{kind}}}}}" for kind in kinds)


def _limits(*more: str) -> Iterable[str]:
    return (f"limits: {{max_total_trials: {each}}}" for each in more)


def _early(*policies: str) -> Iterable[str]:
    return (f"early_termination: {{type: {each}}}" for each in policies)


def _trial(*more: str) -> Iterable[str]:
    return (f"trial: {{command: x, environment: 'azureml:e:1', {each}}}" for each in more)


# Both take these.
ACCEPTED = (
    "display_name: nothing more",
    *(f"sampling_algorithm: {each}" for each in ("random", "grid", "bayesian", "Random")),
    "sampling_algorithm: {type: random}",
    "sampling_algorithm: {type: random, seed: 3}",
    "sampling_algorithm: {type: random, rule: sobol}",
    "sampling_algorithm: {type: random, rule: random, logbase: 10}",
    "sampling_algorithm: {type: random, logbase: e}",
    "sampling_algorithm: {type: grid}",
    "sampling_algorithm: {type: bayesian}",
    *_space(
        "type: choice, values: [a, b]",
        "type: choice, values: [1.5, a]",
        "type: choice, values: [{a: 1}]",
        "type: Choice, values: [1]",
        "type: uniform, min_value: 0, max_value: 1",
        "type: Uniform, min_value: 0, max_value: 1",
        "type: loguniform, min_value: -6, max_value: -1",
        "type: quniform, min_value: 0, max_value: 1, q: 0.1",
        "type: qloguniform, min_value: 0, max_value: 1, q: 2",
        "type: normal, mu: 0, sigma: 1",
        "type: lognormal, mu: 0, sigma: 1",
        "type: qnormal, mu: 0, sigma: 1, q: 1",
        "type: qlognormal, mu: 0, sigma: 1, q: 1",
        "type: randint, upper: 5",
    ),
    "search_space: {x: {type: choice, values: [{type: a, lr: "
    "{type: uniform, min_value: 0, max_value: 1}}]}}",
    *(f"objective: {{goal: {each}, primary_metric: l}}" for each in ("Minimize", "MAXIMIZE")),
    "objective: {goal: minimize, primary_metric: val/acc}",
    *_limits("'4'", "4, max_concurrent_trials: 9", "4, timeout: 100", "4, trial_timeout: 100"),
    *_early(
        "bandit, slack_factor: 0.1",
        "bandit, slack_amount: 0.1",
        "bandit, slack_factor: 0.1, evaluation_interval: 2, delay_evaluation: 5",
        "median_stopping",
        "median_stopping, evaluation_interval: 1, delay_evaluation: 5",
        "truncation_selection, truncation_percentage: 20",
    ),
    *_trial(
        "code: ./src",
        "environment_variables: {A: 1}",
        "distribution: {type: pytorch, process_count_per_instance: 2}",
        "resources: {instance_count: 2}",
    ),
    *("name: a", "display_name: d", "experiment_name: e", "tags: {a: b}", "description: d"),
    *("inputs: {a: 1, b: {path: ./data}}", "outputs: {o: {}}", "identity: {type: managed}"),
    *("queue_settings: {job_tier: spot}", "resources: {instance_count: 2}"),
    "$schema: https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json",
)
# Neither does.
REFUSED = (
    "sampling_algorithm: hyperband",
    "sampling_algorithm: {type: random, rule: halton}",
    "sampling_algorithm: {type: random, seed: a}",
    *_space(
        "type: choice, values: [true]",
        "type: choice, values: 3",
        "type: choice, values: [[1, 2]]",
        "type: choice, values: [1], extra: 2",
        "type: uniform, min_value: 0",
        "type: quniform, min_value: 0, max_value: 1",
        "type: nosuch",
    ),
    "search_space: {x: 3}",
    *("objective: {goal: max, primary_metric: l}", "objective: {goal: minimize}"),
    *("objective: {primary_metric: l}", "objective: {goal: minimize, primary_metric: l, x: 1}"),
    *("limits: {max_concurrent_trials: 2}", "limits: {max_total_trials: 4, x: 1}"),
    *("early_termination: bandit", "early_termination: {type: hyperband}"),
    "early_termination: {type: truncation_selection}",
    "trial: {environment: 'azureml:e:1'}",
    *_trial("compute: azureml:gpu", "inputs: {a: 1}", "limits: {timeout: 60}", "name: n"),
    *("objective: LEFT OUT", "limits: LEFT OUT", "trial: LEFT OUT", "nonsense: 1"),
)
# Azure's service refuses these after the submission.
SOONER = (
    "sampling_algorithm: {type: random, seed: -1}",
    "sampling_algorithm: {type: random, logbase: 1}",
    *_space(
        "type: choice, values: []",
        "type: uniform, min_value: 2, max_value: 1",
        "type: quniform, min_value: 0, max_value: 1, q: 0",
        "type: normal, mu: 0, sigma: 0",
        "type: randint, upper: 0",
        "type: randint, upper: 1.5",
    ),
    *("search_space: {}", "search_space: LEFT OUT"),
    *_limits("0", "-1", "4, max_concurrent_trials: 0"),
    *_early(
        "bandit",
        "bandit, slack_factor: 0.1, slack_amount: 0.1",
        "bandit, slack_factor: -1",
        "bandit, slack_factor: 0.1, evaluation_interval: 0",
        "bandit, slack_factor: 0.1, delay_evaluation: -1",
        "truncation_selection, truncation_percentage: 0",
        "truncation_selection, truncation_percentage: 100",
    ),
)
# Only we take these.
SUPERSETS = (
    "sampling_algorithm: {type: asha, reduction_factor: 2}",
    "sampling_algorithm: {type: bayesian, seed: 1}",
    "early_termination: {type: truncation_selection, truncation_percentage: 20, "
    "exclude_finished_jobs: true}",
    "trial: {command: x}",
    *_trial("metrics: {loss: 'loss (.*)'}", "retry: {max_attempts: 2}"),
)
