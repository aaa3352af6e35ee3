"""`allranks run --sweep`: the options, and the sweep job that they describe."""

from __future__ import annotations

import argparse
import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.cli.output import show
from allranks.cli.run_options import CONCURRENT, SECTIONS, TRIALS
from allranks.core.amounts import counted
from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.api.common import Document

# Compiled when there is a sweep.
_SPACE = r"(?s)(?P<name>[A-Za-z_][\w.-]*)=(?P<type>[a-z]+)\((?P<arguments>.*)\)"
_ARGUMENT = r"""\s*(?:"([^"]*)"|'([^']*)'|([^,"']+?))\s*(?:,|$)"""
# The arguments of each distribution, by its keys.
_KEYS: Mapping[str, tuple[str, ...]] = {
    "choice": (),
    "uniform": ("min_value", "max_value"),
    "loguniform": ("min_value", "max_value"),
    "quniform": ("min_value", "max_value", "q"),
    "qloguniform": ("min_value", "max_value", "q"),
    "normal": ("mu", "sigma"),
    "lognormal": ("mu", "sigma"),
    "qnormal": ("mu", "sigma", "q"),
    "qlognormal": ("mu", "sigma", "q"),
    "randint": ("upper",),
}
_EXAMPLE = "--sweep 'lr=loguniform(1e-5, 1e-1)' --sweep 'batch=choice(16, 32)'"
_POLICIES: Mapping[str, Document] = {
    "bandit": {"type": "bandit", "slack_factor": 0.1, "delay_evaluation": 5},
    "median": {"type": "median_stopping", "delay_evaluation": 5},
    "truncation": {
        "type": "truncation_selection",
        "truncation_percentage": 20,
        "delay_evaluation": 5,
    },
}
# Keys of a sweep that a file given by --sweep may have.
_IN_FILE = ("search_space", "sampling_algorithm", "objective", "limits", "early_termination")


def require_sweep(options: argparse.Namespace) -> None:
    """Raise UsageError for options of a sweep without --sweep."""
    for option in SECTIONS["a sweep"]:
        if option.is_set(options) and not options.sweep:
            raise UsageError("it belongs to a sweep", where=option.words, hint=f"add {_EXAMPLE}")


def sweep_spec(spec: Mapping[str, Any], options: argparse.Namespace) -> Document:
    """The sweep whose trials run the command job ``spec``."""
    if spec.get("state"):
        hint = "leave --state out; each trial has a state folder of its own"
        raise UsageError("trials cannot share a state", where="--state", hint=hint)
    sweep: Document = {"type": "sweep", "search_space": {}, "limits": {}}
    for text in options.sweep:
        _add_space(sweep, text)
    if options.maximize and options.minimize:
        raise UsageError("give --maximize or --minimize, not both", where="--minimize", hint="")
    if metric := options.maximize or options.minimize:
        goal = "maximize" if options.maximize else "minimize"
        sweep["objective"] = {"goal": goal, "primary_metric": metric}
    choices = all(
        isinstance(space, dict) and space.get("type") == "choice"
        for space in sweep["search_space"].values()
    )
    if "objective" not in sweep and not options.sampler and "sampling_algorithm" not in sweep:
        # Nothing compares trials: all combinations run.
        options.sampler = "grid" if choices and not options.stop_early else None
    combinations = _combinations(sweep["search_space"]) if choices else None
    is_free = not options.sampler and "sampling_algorithm" not in sweep and options.seed is None
    if combinations and is_free and combinations <= (options.trials or TRIALS):
        options.sampler = "grid"  # each combination once
    of_file = sweep.get("sampling_algorithm")
    sampler = options.sampler or (of_file.get("type") if isinstance(of_file, dict) else of_file)
    if "objective" not in sweep and (sampler != "grid" or options.stop_early):
        hint = "name the metric that compares trials: --minimize loss -m loss='loss: ([0-9.]+)'"
        needs = "a sweep of more than choices" if sampler != "grid" else "--stop-early"
        message = f"{needs} needs --minimize or --maximize"
        raise UsageError(message, where="--sweep", hint=hint)
    if options.sampler:
        rule = {"type": "random", "rule": "sobol"}
        sweep["sampling_algorithm"] = rule if sampler == "sobol" else {"type": sampler}
    if options.seed is not None:
        of_file = sweep.get("sampling_algorithm", "random")
        algorithm = of_file if isinstance(of_file, dict) else {"type": of_file}
        sweep["sampling_algorithm"] = {**algorithm, "seed": options.seed}
    if options.stop_early:
        sweep["early_termination"] = _POLICIES[options.stop_early]
    if options.no_reuse_nodes:
        sweep["reuse_nodes"] = False
    limits = sweep["limits"]
    if options.trials is not None:
        limits["max_total_trials"] = options.trials
    elif limits.get("max_total_trials") is None:
        limits["max_total_trials"] = _default_trials(sweep)
    total = limits["max_total_trials"]
    repeats = combinations is not None and isinstance(total, int) and total > combinations
    if repeats and sampler != "grid" and not options.quiet:
        which = f"{counted(combinations or 0, 'combination')} of choices for {total} trials"
        show.talk(f"note: {which}: trials repeat them; `--sampler grid` runs each once")
    if options.concurrent is not None:
        limits["max_concurrent_trials"] = options.concurrent
    elif isinstance(total := limits["max_total_trials"], int):
        limits.setdefault("max_concurrent_trials", max(1, min(CONCURRENT, total)))
    own_limits = dict(spec.get("limits") or {})
    if "timeout" in own_limits:
        limits["trial_timeout"] = own_limits.pop("timeout")
    limits |= own_limits
    from allranks.spec.descriptions.job import JOB  # lazy: texts for the reference

    # Keys of a command job that its trials have; the others are the sweep's.
    of_trial = (*JOB["CommandKeys"], *JOB["RankKeys"])
    sweep["trial"] = {key: spec[key] for key in of_trial if key in spec}
    shared = {key: spec[key] for key in spec if key not in (*of_trial, "limits")}
    for key in sweep.keys() & shared.keys():  # of `--set`
        sweep[key] = {**sweep[key], **shared[key]} if isinstance(shared[key], dict) else shared[key]
    return {**shared, **sweep}


def _combinations(space: Mapping[str, Any]) -> int | None:
    """How many there are of flat choices; None if one has parameters of its own."""
    values = [choice.get("values") or [] for choice in space.values()]
    if any(isinstance(value, dict) for several in values for value in several):
        return None
    return math.prod(map(len, values))


def _default_trials(sweep: Mapping[str, Any]) -> int:
    from allranks.spec.sweep.job import default_trials  # lazy: imports the models

    return default_trials(sweep) or TRIALS


def _add_space(sweep: Document, text: str) -> None:
    """Add a parameter, or the parts of a sweep in a file."""
    matched = re.fullmatch(_SPACE, text.strip())
    if matched is None:
        if "=" in text or not Path(text).is_file():
            raise _wrong(text)
        from allranks.spec.yaml import load  # lazy: YAML takes 60 ms

        data, _ = load.read(load.content(Path(text)), file=text)
        parts = data if "search_space" in data else {"search_space": data}
        sweep["search_space"] |= parts["search_space"] or {}
        sweep |= {key: parts[key] for key in _IN_FILE[1:] if parts.get(key)}
        return
    name, kind = matched["name"], matched["type"]
    if kind not in _KEYS:
        hint = f"one of {', '.join(_KEYS)}: {_EXAMPLE}"
        raise UsageError(f"{kind!r} is not a distribution", where="--sweep", hint=hint)
    if name in sweep["search_space"]:
        hint = "use each name once"
        raise UsageError(f"{name!r} is given twice", where="--sweep", hint=hint)
    sweep["search_space"][name] = {"type": kind, **_arguments(text, kind, matched["arguments"])}


def signature(text: str) -> str:
    """``uniform(min_value, max_value)`` of the text `lr=uniform(…)`."""
    kind = text.partition("=")[2].partition("(")[0]
    return f"{kind}({', '.join(_KEYS[kind])})"


def _arguments(text: str, kind: str, written: str) -> Document:
    values = list(_values(text, written))
    if kind == "choice":
        if not values:
            raise _wrong(text)
        return {"values": values}
    keys = _KEYS[kind]
    if len(values) != len(keys) or not all(isinstance(value, int | float) for value in values):
        hint = f"write {signature(text)}"
        raise UsageError(f"{kind} takes {len(keys)} numbers: {text}", where="--sweep", hint=hint)
    numbers = dict(zip(keys, values, strict=True))
    if "max_value" in numbers and numbers["min_value"] > numbers["max_value"]:
        message = f"min_value is more than max_value: {text}"
        raise UsageError(message, where="--sweep", hint="exchange the two")
    if kind in ("loguniform", "qloguniform"):
        # On a command line the bounds are the values themselves; in a file they are logarithms.
        for key in ("min_value", "max_value"):
            if numbers[key] <= 0:
                hint = "use uniform for bounds that are not positive"
                message = f"{kind} needs bounds above 0: {text}"
                raise UsageError(message, where="--sweep", hint=hint)
            numbers[key] = math.log(numbers[key])
    return numbers


def _values(text: str, written: str) -> Iterator[Any]:
    """The arguments between commas: numbers, words, and texts in quotes."""
    argument = re.compile(_ARGUMENT)
    at = 0
    while written[at:].strip():
        matched = argument.match(written, at)
        if matched is None:
            raise _wrong(text)
        double, single, plain = matched.groups()
        yield _value(plain) if plain is not None else double or single or ""
        at = matched.end()


def _value(word: str) -> int | float | str:
    for read in (int, float):
        with contextlib.suppress(ValueError):
            number = read(word)
            return number if math.isfinite(number) else word
    return word


def _wrong(text: str) -> UsageError:
    message = f"{text!r} is neither NAME=DISTRIBUTION(…) nor a file"
    return UsageError(message, where="--sweep", hint=_EXAMPLE)
