"""`--set PATH=VALUE` must have an effect.

Job files are read tolerantly: names of inputs and outputs are free, `distribution` keeps unknown
keys, and keys that Azure ML adds are skipped. A key set by hand is meant to have an effect, so an
unused one is an error.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from allranks.errors import Problem, SpecError
from allranks.spec.any_job import TYPES
from allranks.spec.fields.problems import nearest
from allranks.spec.job import CommandJob
from allranks.spec.job_keys import READ_ONLY
from allranks.spec.job_parts import Distribution, snake
from allranks.spec.job_type import job_type
from allranks.spec.shell.expressions import references

# The singular, and the variables through which a script or command reads one.
_SECTIONS = {
    "inputs": ("input", r"\b(?:AZURE_ML_INPUT|AZUREML_PARAMETER)_(\w+)"),
    "outputs": ("output", r"\bAZURE_ML_OUTPUT_(\w+)"),
}
_DISTRIBUTIONS = {
    model.model_fields["type"].default: model for model in get_args(get_args(Distribution)[0])
}


def names(data: Mapping[str, Any]) -> dict[str, set[str]]:
    """The user-chosen names at each place of a job and of its steps, for a later comparison."""
    places = {place: set(_at(data, place)) for place in ("distribution", _PROPERTIES)}
    for at, job in _jobs(data):
        places |= {f"{at}{section}": set(_at(job, section)) for section in _SECTIONS}
    return places


_PROPERTIES = "resources.properties"


def ineffective(
    data: Mapping[str, Any],
    before: Mapping[str, set[str]],
    paths: Sequence[str],
    *,
    typed: bool = False,
    engines: Collection[str] = (),
) -> list[Problem]:
    """Overrides without effect. ``data`` is the job after ``paths`` were set, ``before`` its
    ``names`` before. ``typed``: the job comes from a command line. ``engines``: the valid keys of
    `resources.properties`, if known."""
    return [
        *_unread(data, paths),
        *_undeclared(data, before, typed),
        *_unknown_of_distribution(data, before["distribution"]),
        *(_unknown_engines(data, before[_PROPERTIES], engines) if engines else ()),
    ]


def _unread(data: Mapping[str, Any], paths: Sequence[str]) -> Iterator[Problem]:
    """Unknown keys of the job itself; its models find others."""
    model = TYPES.get(job_type(data), CommandJob)
    names = [field.alias or name for name, field in model.model_fields.items()]
    for key in dict.fromkeys(path.partition(".")[0] for path in paths):
        if key in READ_ONLY:
            message = f"`{key}` is read-only and cannot be set"
            yield Problem(message, where=key, hint=nearest(key, names) or "leave it out")
        elif data.get(key) is None and key not in names:
            hint = nearest(key, names) or "`allranks job validate --help`"
            yield Problem(f"`{key}` is not a key", where=key, hint=hint)


def _undeclared(
    data: Mapping[str, Any], before: Mapping[str, set[str]], typed: bool
) -> Iterator[Problem]:
    for at, job in _jobs(data):
        step = at.removeprefix("jobs.").replace(".jobs.", ".").rstrip(".")
        owner = f"step `{step}`" if step else "job"
        for section, (word, variable) in _SECTIONS.items():
            place = f"{at}{section}"
            if place not in before:
                continue  # a step that was set as a whole
            declared = before[place] | _mentioned(job, section, variable)
            for name in sorted(set(_at(job, section)) - declared):
                hint = nearest(name, declared) or _declare(job, section, name, declared, typed)
                message = f"the {owner} has no {word} `{name}`"
                yield Problem(message, f"{place}.{name}", hint=hint)


def _declare(
    job: Mapping[str, Any], section: str, name: str, names: Collection[str], typed: bool
) -> str:
    """How a job gets an input or output that it does not have."""
    expression = f"${{{{{section}.{name}}}}}"
    if section == "inputs" and (literal := _literal(job, name)):
        change = f"change it there, or write {expression} for its value"
        return f"the command says `{literal}`: {change}"
    listed = ", ".join(f"`{name}`" for name in sorted(names)) or "none"
    declare = f"declare it in the file under `{section}`"
    if typed:
        declare = f"write {expression} in the command" if section == "inputs" else "add it with -o"
    return f"its {section}: {listed}; to add one, {declare}"


def unread_inputs(data: Mapping[str, Any], overrides: Sequence[str]) -> list[str]:
    """Notes on the inputs among ``overrides`` that no command or variable of the job reads, with
    the literal that stands in its command. A script may still read their variables."""
    notes = []
    paths = [f"{override.partition('=')[0].strip()}." for override in overrides]
    for at, job in _jobs(data):
        for name in _at(job, "inputs"):
            is_set = any(path.startswith(f"{at}inputs.{name}.") for path in paths)
            if not is_set or _is_read(job, name):
                continue
            variable = "AZURE_ML_INPUT" if _at(job, f"inputs.{name}") else "AZUREML_PARAMETER"
            instead = f"; a script finds it in the variable {variable}_{name}"
            if literal := _literal(job, name):
                instead = f": the command says {literal}"
            notes.append(f"nothing in the command reads the input {name}{instead}")
    return notes


def _is_read(job: Mapping[str, Any], name: str) -> bool:
    """Whether anything of the job but its inputs refers to an input."""
    if "component" in job or isinstance(job.get("trial"), str):
        return True  # it is written in another file
    text = json.dumps({key: job[key] for key in job if key != "inputs"}, default=str)
    expression = rf"\{{\{{\s*(?:parent\.)?inputs\.{re.escape(name)}(?![\w-])"
    variable = rf"\b(?:AZURE_ML_INPUT|AZUREML_PARAMETER)_{re.escape(name)}\b"
    return re.search(f"{expression}|{variable}", text) is not None


def _literal(job: Mapping[str, Any], name: str) -> str | None:
    """The option of that name in the command, with its value: `--lr .03`, or Hydra's `lr=.03`."""
    command = job.get("command") or _at(job, "trial").get("command")
    spelt = re.sub(r"[-_]", "[-_]", re.escape(name).replace("\\-", "-"))
    value = r"(?:\"[^\"]*\"|'[^']*'|\$\{\{.*?\}\}|(?!--)[^\s;|&\"']+)"
    option = rf"(?<!\S)(?:--?{spelt}(?:=|[ \t]+)|\+{{0,2}}{spelt}=){value}"
    if not isinstance(command, str):
        return None
    match = re.search(option, command.replace("\\\n", " "))
    return match and " ".join(match[0].split())


def _jobs(data: Mapping[str, Any], at: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The job and those of its steps that are written out, each with its place: `jobs.train.`."""
    yield at, data
    for name, step in _at(data, "jobs").items():
        if isinstance(step, Mapping) and "component" not in step:
            yield from _jobs(step, f"{at}jobs.{name}.")


def _mentioned(data: Mapping[str, Any], section: str, variable: str) -> set[str]:
    """The names referenced by the command or a variable."""
    texts = [
        data.get("command"),
        *_at(data, "environment_variables").values(),
        _at(data, "trial").get("command"),
        *_at(data, "trial.environment_variables").values(),
    ]
    names: set[str] = set()
    for text in filter(lambda text: isinstance(text, str), texts):
        names |= set(re.findall(variable, text))
        try:
            referred = references(text)
        except SpecError:  # the model reports it
            continue
        prefix = f"{section}."
        names |= {name.removeprefix(prefix) for name in referred if name.startswith(prefix)}
    return names


def _unknown_of_distribution(data: Mapping[str, Any], before: set[str]) -> Iterator[Problem]:
    distribution = _at(data, "distribution")
    model = _DISTRIBUTIONS.get(str(snake(distribution.get("type"))))
    if model is None:
        return
    keys = list(model.model_fields)
    for name in sorted(set(distribution) - before - set(keys)):
        hint = nearest(name, keys) or "known here: " + ", ".join(f"`{key}`" for key in keys)
        message = f"`{name}` is not a key of `{distribution['type']}`"
        yield Problem(message, f"distribution.{name}", hint=hint)


def _unknown_engines(
    data: Mapping[str, Any], before: set[str], engines: Collection[str]
) -> Iterator[Problem]:
    for name in sorted(set(_at(data, _PROPERTIES)) - before - set(engines)):
        hint = nearest(name, engines) or f"there are: {', '.join(sorted(engines))}"
        yield Problem(f"engine {name!r} not found", f"{_PROPERTIES}.{name}", hint=hint)


def _at(data: Any, place: str) -> Mapping[str, Any]:
    """The mapping at a dotted path, or an empty one."""
    for step in place.split("."):
        data = data.get(step) if isinstance(data, Mapping) else None
    return {str(key): value for key, value in data.items()} if isinstance(data, Mapping) else {}
