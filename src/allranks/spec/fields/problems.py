"""Turn pydantic's errors into readable problems, one per key."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from allranks.errors import Problem, SpecError
from allranks.spec.fields.scalars import Wrong

Of = TypeVar("Of", bound=BaseModel)
# The models whose keys are valid at a place.
Models = Mapping[str, tuple[type[BaseModel], ...]]

_A_TYPE = {"distribution": "pytorch", "identity": "user_identity"}

# What pydantic's error types expect.
_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "`true` or `false`",
    "bool_parsing": "`true` or `false`",
    "dict_type": "a mapping of keys to values",
    "mapping_type": "a mapping of keys to values",
    "model_type": "a mapping of keys to values",
    "model_attributes_type": "a mapping of keys to values",
    "tuple_type": "a list",
    "list_type": "a list",
}
_UNKNOWN = ("extra_forbidden", "no_such_attribute")
_BOUND = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}


def validated(
    kind: type[Of],
    values: Mapping[str, Any],
    models: Models,
    lines: Mapping[str, int] | None = None,
    file: str | None = None,
    across: Callable[[Of], Iterable[Problem]] = lambda model: (),
) -> Of:
    """The model of the values. Raises one SpecError with all problems, or with those that it has
    ``across`` keys."""
    try:
        model = kind.model_validate(values)
    except ValidationError as error:
        several = problems(error, values, models)
    except UnicodeEncodeError as error:
        half = error.object[error.start : error.end]
        several = [Problem(f"{half!r} is an incomplete character", hint="correct or remove it")]
    else:
        if not (several := [*across(model)]):
            return model
    raise SpecError([placed(problem, lines or {}) for problem in several], file=file)


def without_none(data: Mapping[str, Any]) -> dict[str, Any]:
    """The keys with values: an empty section in YAML (`tags:`) counts as absent."""
    return {key: value for key, value in data.items() if value is not None}


def problems(error: ValidationError, data: Mapping[str, Any], models: Models) -> list[Problem]:
    """One problem per key, in the order of ``error``. ``models`` has each place's valid keys."""
    by_key: dict[str, list[dict[str, Any]]] = {}
    for one in error.errors(include_url=False):
        where = _dotted(one["loc"], data, missing=one["type"] == "missing")
        by_key.setdefault(where, []).append(dict(one))
    unknown = [key for key, errors in by_key.items() if errors[0]["type"] in _UNKNOWN]
    return [
        _problem(key, errors, models)
        for key, errors in by_key.items()
        if errors[0]["type"] != "missing" or not any(_is_meant(key, word) for word in unknown)
    ]


def _is_meant(missing: str, unknown: str) -> bool:
    """Whether a missing key is there, misspelt."""
    same_place = missing.rpartition(".")[0] == unknown.rpartition(".")[0]
    return same_place and bool(get_close_matches(_last(unknown), [_last(missing)]))


def placed(problem: Problem, lines: Mapping[str, int]) -> Problem:
    """The problem with the line of its key, or of the nearest key around it."""
    where = problem.where or ""
    while where and where not in lines:
        where = where.rpartition(".")[0]
    return problem._replace(line=lines.get(where) or None)


@contextmanager
def below(key: str) -> Iterator[None]:
    """Problems inside, of what is at ``key`` of a whole, get keys of the whole."""
    try:
        yield
    except SpecError as error:
        several = [problem.below(key) for problem in error.problems]
        raise SpecError(several, file=error.file) from None


@contextmanager
def in_file(file: str | Path | None, lines: Mapping[str, int]) -> Iterator[None]:
    """Problems inside that name no file are of this one, and get the lines of their keys."""
    try:
        yield
    except SpecError as error:
        if error.file is not None:
            raise
        several = [placed(problem, lines) for problem in error.problems]
        raise SpecError(several, file=None if file is None else str(file)) from None


def nearest(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """``did you mean …?`` if a similar name exists."""
    near = nearest_name(word, names, cutoff)
    return f"did you mean `{near}`?" if near else None


def nearest_name(word: str, names: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The name that ``word`` is probably meant to be."""
    return next(iter(get_close_matches(word, sorted(names), 1, cutoff)), None)


def _dotted(loc: tuple[int | str, ...], data: Any, *, missing: bool) -> str:
    """The key as the user wrote it, without the variants in pydantic's path."""
    kept: list[str] = []
    for number, step in enumerate(loc):
        last = number == len(loc) - 1
        if isinstance(data, Mapping) and (step in data or (last and missing)):
            data = data.get(step)
        elif isinstance(data, list | tuple) and isinstance(step, int) and step < len(data):
            data = data[step]
        else:
            continue
        kept.append(str(step))
    return ".".join(kept)


def _problem(key: str, errors: list[dict[str, Any]], models: Models) -> Problem:
    first = errors[0]
    kind = first["type"]
    context = first.get("ctx", {})
    value = first.get("input")
    cause = context.get("error")
    expected = list(dict.fromkeys(_WANTED[e["type"]] for e in errors if e["type"] in _WANTED))
    if isinstance(cause, Wrong):
        return Problem(str(cause), where=key, hint=cause.hint)
    if kind in _UNKNOWN:
        return _unknown_key(key, models)
    if kind == "missing":
        return Problem(f"`{_last(key)}` is required", where=key, hint=f"add `{_last(key)}: …`")
    if kind in ("union_tag_invalid", "union_tag_not_found"):
        return _untold(key, kind, context)
    if kind in ("literal_error", "enum"):
        return _not_among(key, value, re.findall(r"'([^']*)'", context["expected"]))
    if kind in _BOUND:
        name, words = _BOUND[kind]
        message = f"must be {words} {context[name]:g}, not {_shown(value)}"
        return Problem(message, where=key, hint="use such a number, or leave it out")
    if kind in ("string_too_short", "too_short"):
        return Problem("must not be empty", where=key, hint=f"write `{_last(key)}: …`")
    if expected:
        return _wrong_form(key, value, expected)
    return Problem(f"cannot be {_shown(value)}", where=key, hint=f"correct `{_last(key)}`")


def _unknown_key(key: str, models: Models) -> Problem:
    place, _, name = key.rpartition(".")
    above = place.rpartition(".")[0]
    keys = _keys(models.get(place) or models.get(f"{above}.*") or ())
    inside = f" in `{place}`" if place else ""
    # A key such as `a.b: 1` may itself contain dots.
    hint = nearest(name, keys) or _elsewhere(name, models)
    if name in keys:  # of another type
        hint = "it does not go with this `type`: leave it out"
    elif hint is None:
        hint = "known here: " + ", ".join(f"`{k}`" for k in keys)
    return Problem(f"`{name}` is not a key{inside}", where=key, hint=hint)


def _keys(models: Iterable[type[BaseModel]]) -> list[str]:
    """The keys of all models, without duplicates."""
    fields = [item for model in models for item in model.model_fields.items()]
    return list(dict.fromkeys(field.alias or name for name, field in fields))


def _elsewhere(name: str, models: Models) -> str | None:
    """Where the key belongs: a top-level ``instance_count`` belongs in ``resources``."""
    for place, here in models.items():
        if place and "*" not in place and name in _keys(here):
            return f"it belongs in `{place}`: `{place}.{name}`"
    return "it belongs in `distribution`" if name == "process_count_per_instance" else None


def _untold(key: str, kind: str, context: Mapping[str, Any]) -> Problem:
    where = key if key.endswith(".type") else f"{key}.type"
    if kind == "union_tag_not_found":
        word = _A_TYPE.get(key, "…")
        return Problem("`type` is required", where=where, hint=f"add `type: {word}`, or another")
    expected = re.findall(r"'([^']*)'", context["expected_tags"])
    return _not_among(where, context["tag"], expected)


def _not_among(key: str, value: object, expected: list[str]) -> Problem:
    shown = ", ".join(f"`{word}`" for word in expected)
    several = len(expected) > 1
    message = f"must be {'one of ' if several else ''}{shown}, not {_shown(value)}"
    choose = f"use {'one of ' if several else ''}{shown}"
    return Problem(message, where=key, hint=nearest(str(value), expected) or choose)


def _wrong_form(key: str, value: object, kinds: list[str]) -> Problem:
    forms = "text, a number, a truth value or a mapping" if len(kinds) > 3 else " or ".join(kinds)
    message = f"must be {forms}, not {_shown(value)}"
    hint = f"write `{_last(key)}: …` with {forms}"
    if value is None:
        hint = f"give `{_last(key)}` a value, or remove it"
    elif "a list" in kinds and isinstance(value, str):
        hint = f"write `{_last(key)}: [{value}]`"
    elif isinstance(value, Mapping):
        hint = f"write `{_last(key)}: …` on one line, without keys below it"
    elif "a mapping of keys to values" in kinds:
        hint = f"write `key: value` lines below `{_last(key)}:`"
    return Problem(message, where=key, hint=hint)


def _last(key: str) -> str:
    return key.rpartition(".")[2]


def _shown(value: object) -> str:
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"`{text if len(text) <= 60 else text[:59] + '…'}`"
