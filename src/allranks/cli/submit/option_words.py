"""Errors of `allranks run` and `dev`, by their options instead of the keys of a job file."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from shlex import quote

from allranks.cli.parser import with_option
from allranks.cli.run_options import option_for
from allranks.cli.submit.sweep import signature
from allranks.errors import Problem, SpecError

# What hints call by keys.
_WORDS: Mapping[str, str] = {
    "`type: choice` with `values`": "choice(…)",
    "`sampling_algorithm: random`": "`--sampler random`",
}


def in_option_words(error: SpecError, options: argparse.Namespace) -> SpecError:
    """The error with the options instead of the keys that they stand for."""
    return SpecError([_in_options(problem, options) for problem in error.problems], file=error.file)


def _in_options(problem: Problem, options: argparse.Namespace) -> Problem:
    where = (problem.where or "").removeprefix("trial.")
    if any(_overlap(where, text.partition("=")[0].strip()) for text in getattr(options, "set", ())):
        return problem
    hint = problem.hint
    for keys, words in _WORDS.items():
        hint = hint and hint.replace(keys, words)
    if where.startswith("search_space."):
        return _in_space(problem._replace(where=where, hint=hint), options.sweep)
    name = "COMMAND" if where == "command" else None
    if match := option_for(where):
        option, below = match
        if not option.is_set(options):
            return problem  # of the default, or of a file
        name = option.words
        if option.is_named and below:
            name = f"{name.partition('/')[0]} {quote(below.removesuffix('.path'))}"
    return problem if name is None else with_option(problem._replace(where=where, hint=hint), name)


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
