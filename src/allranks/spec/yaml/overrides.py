"""`--set PATH=VALUE` must have an effect.

Job files are read tolerantly: names of inputs and outputs are free, `distribution` keeps unknown
keys, and keys that Azure ML adds are skipped. A key set by hand is meant to have an effect, so an
unused one is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, get_args

from allranks.errors import Problem, SpecError
from allranks.spec.any_job import TYPES
from allranks.spec.fields.problems import nearest
from allranks.spec.job import READ_ONLY, CommandJob
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
    """The user-chosen names at each place of a job, for a later comparison."""
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
    """Overrides without effect. ``data`` is the job after ``paths`` were set, ``before`` its
    ``names`` before. ``typed``: the job comes from a command line, where `--set` also declares
    inputs. ``engines``: the valid keys of `resources.properties`, if known."""
    return [
        *_unread(data, paths),
        *_undeclared(data, before, typed),
        *_unknown_of_distribution(data, before["distribution"]),
        *(_unknown_engines(data, before[_PROPERTIES], engines) if engines else ()),
    ]


def _unread(data: Mapping[str, Any], paths: Sequence[str]) -> Iterator[Problem]:
    """Unknown keys of the job itself; its models find others."""
    model = TYPES.get(job_type(data), CommandJob)
    known = [field.alias or name for name, field in model.model_fields.items()]
    for key in dict.fromkeys(path.partition(".")[0] for path in paths):
        if key in READ_ONLY:
            message = f"`{key}` is read-only and cannot be set"
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
            declare = "add it with -o" if typed else f"declare it in the file under `{section}`"
            hint = near or f"its {section}: {listed}; to add one, {declare}"
            yield Problem(f"the job has no {word} `{name}`", f"{section}.{name}", hint=hint)


def _mentioned(data: Mapping[str, Any], section: str, variable: str) -> set[str]:
    """The names referenced by the command or a variable."""
    texts = [
        *(data.get("command"), *_at(data, "environment_variables").values()),
        *(_at(data, "trial").get("command"), *_at(data, "trial.environment_variables").values()),
    ]
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
        yield Problem(f"engine {name!r} not found", f"{_PROPERTIES}.{name}", hint=hint)


def _at(data: Any, place: str) -> Mapping[str, Any]:
    """The mapping at a dotted path, or an empty one."""
    for step in place.split("."):
        data = data.get(step) if isinstance(data, Mapping) else None
    return {str(key): value for key, value in data.items()} if isinstance(data, Mapping) else {}
