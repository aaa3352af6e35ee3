"""Errors of `allranks run` and `dev`, by their options instead of the keys of a job file."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from shlex import quote

from allranks.cli.parser import option_of, with_option
from allranks.cli.submit.sweep import signature
from allranks.errors import Problem, SpecError

# The option of each key, and of the keys below it, where it is not called as the key. ``trial.`` is
# taken off before.
_OPTIONS: Mapping[str, str] = {
    "code": "-C/--code",
    "command": "COMMAND",
    "compute": "-c/--compute",
    "distribution": "-d/--distribution",
    "distribution.parameter_server_count": "--parameter-servers",
    "distribution.process_count_per_instance": "-p/--procs-per-node",
    "distribution.worker_count": "--workers",
    "early_termination": "--stop-early",
    "environment": "-e/--environment",
    "environment.image": "--image",
    "environment_variables": "--env",
    "experiment_name": "--experiment",
    "inputs": "-i/--input",
    "inside": "--in",
    "limits.max_concurrent_trials": "--concurrent",
    "limits.max_total_trials": "--trials",
    "limits.timeout": "--timeout",
    "limits.trial_timeout": "--timeout",
    "metrics": "-m/--metric",
    "outputs": "-o/--output",
    "resources.gpus_per_instance": "--gpus",
    "resources.instance_count": "-n/--nodes",
    "retry.max_attempts": "--max-attempts",
    "sampling_algorithm": "--sampler",
    "sampling_algorithm.seed": "--seed",
    "tags": "--tag",
}
# Below these keys stand names of the user's.
_NAMED = ("inputs", "outputs", "metrics", "environment_variables", "tags")
# What hints call by keys.
_WORDS: Mapping[str, str] = {
    "`type: choice` with `values`": "choice(…)",
    "`sampling_algorithm: random`": "`--sampler random`",
}


@contextmanager
def option_words(options: argparse.Namespace) -> Iterator[None]:
    """A SpecError raised in the block names options instead of the keys that they stand for."""
    try:
        yield
    except SpecError as error:
        problems = [_in_options(problem, options) for problem in error.problems]
        raise SpecError(problems, file=error.file) from None


def _in_options(problem: Problem, options: argparse.Namespace) -> Problem:
    where = (problem.where or "").removeprefix("trial.")
    if any(_overlap(where, text.partition("=")[0].strip()) for text in getattr(options, "set", ())):
        return problem
    hint = problem.hint
    for keys, words in _WORDS.items():
        hint = hint and hint.replace(keys, words)
    if where.startswith("search_space."):
        return _in_space(problem._replace(where=where, hint=hint), options.sweep)
    key = where
    while key and key not in _OPTIONS:
        key = key.rpartition(".")[0]
    option = option_of(key or where.partition(".")[0], _OPTIONS)
    if where.startswith("resources.properties."):  # the same of each engine
        option = f"--{where.rpartition('.')[2]}"
    elif where.startswith("metrics.") and where.endswith(".rank"):
        option = "--metric-rank"
    elif key in _NAMED and where != key:
        name = where.removeprefix(f"{key}.").removesuffix(".path")
        option = f"{option.partition('/')[0]} {quote(name)}"
    attribute = _OPTIONS.get(key, option).rpartition("/")[2].lstrip("-").replace("-", "_").lower()
    attribute = "inside" if attribute == "in" else attribute  # a word of Python's
    if getattr(options, attribute, None) in (None, []):
        return problem  # nobody gave it: the default, or of a file
    return with_option(problem._replace(where=where, hint=hint), option)


def _overlap(one: str, other: str) -> bool:
    return f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}.")


def _in_space(problem: Problem, spaces: Sequence[str]) -> Problem:
    _, name, *keys = (problem.where or "").split(".")
    for text in spaces:
        if text.startswith(f"{name}="):
            if keys:
                message, hint = f"{keys[0]} {problem.message}", f"write {signature(text)}"
                problem = problem._replace(message=message, hint=hint)
            return problem._replace(where=f"--sweep {quote(text)}")
    return problem  # of a file
