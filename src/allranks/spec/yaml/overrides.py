"""`--set PATH=VALUE` may only set what has an effect.

A job file is read generously: names of inputs and outputs are free, `distribution` keeps keys that
it does not know, and what Azure ML writes into a job's description is skipped. A key that someone
sets by hand is there for its effect, so a name that nothing reads is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import nearest
from allranks.spec.job import READ_ONLY, CommandJob
from allranks.spec.job_parts import Distribution, snake
from allranks.spec.shell.expressions import references

# Singular, and the variables by which a script or command reads one of them.
_SECTIONS = {
    "inputs": ("input", r"\b(?:AZURE_ML_INPUT|AZUREML_PARAMETER)_(\w+)"),
    "outputs": ("output", r"\bAZURE_ML_OUTPUT_(\w+)"),
}
_DISTRIBUTIONS = {
    model.model_fields["type"].default: model for model in get_args(get_args(Distribution)[0])
}


def names(data: Mapping[str, Any]) -> dict[str, set[str]]:
    """The names at each place of a job whose names are free, to compare with later."""
    return {place: set(_at(data, place)) for place in (*_SECTIONS, "distribution", _PROPERTIES)}


_PROPERTIES = "resources.properties"


def ineffective(
    data: Mapping[str, Any],
    before: Mapping[str, set[str]],
    paths: Sequence[str],
    *,
    typed: bool = False,
    engines: Collection[str] = (),
) -> list[Problem]:
    """What was set and has no effect. ``data`` is the job after ``paths`` were set, ``before`` its
    ``names`` until then. ``typed``: it comes from a command line, where `--set` is also how an
    input is declared. ``engines``: the keys of `resources.properties`, where they are known."""
    return [
        *_unread(data, paths),
        *_undeclared(data, before, typed),
        *_unknown_of_distribution(data, before["distribution"]),
        *(_unknown_engines(data, before[_PROPERTIES], engines) if engines else ()),
    ]


def _unread(data: Mapping[str, Any], paths: Sequence[str]) -> Iterator[Problem]:
    """Keys of the job itself; other unknown ones are found by its model."""
    known = [field.alias or name for name, field in CommandJob.model_fields.items()]
    for key in dict.fromkeys(path.partition(".")[0] for path in paths):
        if key in READ_ONLY:
            message = f"`{key}` describes a job that was submitted, and sets nothing"
            yield Problem(message, where=key, hint=nearest(key, known) or "leave it out")
        elif data.get(key) is None and key not in known:
            hint = nearest(key, known) or "`allranks job validate --help`"
            yield Problem(f"`{key}` is not a key", where=key, hint=hint)


def _undeclared(
    data: Mapping[str, Any], before: Mapping[str, set[str]], typed: bool
) -> Iterator[Problem]:
    for section, (word, variable) in _SECTIONS.items():
        known = before[section] | _mentioned(data, section, variable)
        for name in sorted(set(_at(data, section)) - known):
            near = nearest(name, known)
            if typed and section == "inputs" and near is None:
                continue
            listed = ", ".join(f"`{each}`" for each in sorted(known)) or "none"
            declare = "name it with -o" if typed else f"declare it in the file under `{section}`"
            hint = near or f"its {section}: {listed}; to add one, {declare}"
            yield Problem(f"the job has no {word} `{name}`", f"{section}.{name}", hint=hint)


def _mentioned(data: Mapping[str, Any], section: str, variable: str) -> set[str]:
    """The names that the command or a variable refers to."""
    texts = [data.get("command"), *_at(data, "environment_variables").values()]
    found: set[str] = set()
    for text in filter(lambda text: isinstance(text, str), texts):
        found |= set(re.findall(variable, text))
        try:
            referred = references(text)
        except SpecError:  # the model reports it
            continue
        prefix = f"{section}."
        found |= {each.removeprefix(prefix) for each in referred if each.startswith(prefix)}
    return found


def _unknown_of_distribution(data: Mapping[str, Any], before: set[str]) -> Iterator[Problem]:
    given = _at(data, "distribution")
    model = _DISTRIBUTIONS.get(str(snake(given.get("type"))))
    if model is None:
        return
    known = list(model.model_fields)
    for name in sorted(set(given) - before - set(known)):
        hint = nearest(name, known) or "known here: " + ", ".join(f"`{each}`" for each in known)
        message = f"`{name}` is not a key of `{given['type']}`"
        yield Problem(message, f"distribution.{name}", hint=hint)


def _unknown_engines(
    data: Mapping[str, Any], before: set[str], engines: Collection[str]
) -> Iterator[Problem]:
    for name in sorted(set(_at(data, _PROPERTIES)) - before - set(engines)):
        hint = nearest(name, engines) or f"there are: {', '.join(sorted(engines))}"
        yield Problem(f"there is no engine {name!r}", f"{_PROPERTIES}.{name}", hint=hint)


def _at(data: Any, place: str) -> Mapping[str, Any]:
    """The mapping at a dotted place, empty where there is none."""
    for step in place.split("."):
        data = data.get(step) if isinstance(data, Mapping) else None
    return {str(key): value for key, value in data.items()} if isinstance(data, Mapping) else {}
