"""Options of an engine as data: one declaration yields flags, file keys, help and validation."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from allranks.core import amounts
from allranks.core.environments.container import ENGINES
from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import nearest


class Type(StrEnum):
    """The type of a value. COUNT is a whole number, also 0. LINES is a list of strings, or one
    string. MEMORY keeps its text, an amount with a unit. PATH is absolute: the CLI and the SDK
    resolve relative ones. MAPPING is a mapping, or its text in YAML or JSON."""

    TEXT = "text"
    NUMBER = "number"
    COUNT = "count"
    SWITCH = "switch"
    LINES = "lines"
    MEMORY = "memory"
    PATH = "path"
    MAPPING = "mapping"


class Option(NamedTuple):
    """``help`` appears in `compute create --help`. ``connects``: the option selects the cluster, so
    only a compute may set it; jobs may override all others. ``variable``: the environment
    variable that is the default. ``choices``: the allowed values, if restricted. ``live``: jobs
    that wait follow a change of the compute's."""

    name: str
    help: str
    type: Type = Type.TEXT
    default: Any = None
    connects: bool = False
    variable: str | None = None
    choices: tuple[str, ...] = ()
    live: bool = False


# An option of engines whose nodes need not share the disk of the server's home.
SHARED_HOME = Option(
    "shared_home",
    "whether nodes see the disk with ALLRANKS_HOME: yes (one that does not is refused), no (all "
    "files travel over the network), or auto (each node looks)",
    default="auto",
    choices=("yes", "no", "auto"),
)
# Options of every compute.
COMMON = (
    Option("cpus", "CPUs of each node", Type.NUMBER),
    Option("memory", "memory of each node, such as 4g", Type.MEMORY),
    Option(
        "container",
        f"container engine of the nodes, for jobs with an image: {', '.join(ENGINES)} (none)",
        choices=ENGINES,
    ),
    Option(
        "cache",
        "folder on the nodes to cache downloaded data in, best on a local disk (in ALLRANKS_HOME; "
        "on nodes that do not see it /var/tmp/allranks-UID)",
        Type.PATH,
    ),
    Option("cache_limit", "maximum size of the cache, such as 500g (its disk)", Type.MEMORY),
)


def check(
    declared: Sequence[Option],
    options: Mapping[str, Any],
    where: str,
    *,
    of_job: bool = False,
    elsewhere: Mapping[str, Sequence[str]] = {},
) -> dict[str, Any]:
    """Return ``options`` converted to the declared types. Raises SpecError with all problems.

    ``where`` is the key that contains them. ``of_job``: refuse options that select the cluster.
    ``elsewhere``: names of engines by the options that they have.
    """
    by_name = {option.name: option for option in declared if not (of_job and option.connects)}
    values: dict[str, Any] = {}
    problems = []
    for name, value in options.items():
        place = f"{where}.{name}" if where else name
        option = by_name.get(name.replace("-", "_"))
        if option is None:
            own = {option.name for option in declared}
            others = () if name in own else elsewhere.get(name.replace("-", "_"), ())
            problems.append(_unknown(name, place, by_name, others))
            continue
        try:
            if option.choices and isinstance(value, bool):
                value = "yes" if value else "no"  # YAML's own words
            values[option.name] = _READ[option.type](value)
            if option.choices and values[option.name] not in option.choices:
                raise ValueError(" or ".join(option.choices))
        except ValueError as error:
            problems.append(Problem(f"{value!r} is not {error}", place, hint=option.help))
    if problems:
        raise SpecError(problems)
    return values


def defaults(declared: Sequence[Option]) -> dict[str, Any]:
    return {option.name: option.default for option in declared if option.default is not None}


def connection(declared: Sequence[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of ``values`` that select the cluster."""
    names = {option.name for option in declared if option.connects}
    return {name: value for name, value in values.items() if name in names}


def _unknown(
    name: str, place: str, by_name: Mapping[str, Option], others: Sequence[str]
) -> Problem:
    options = f"options: {', '.join(by_name)}" if by_name else "this engine has no options"
    hint = nearest(name, by_name) or options
    if others:
        hint = f"it is an option of {' or '.join(others)}; {options}"
    return Problem(f"unknown option {name!r}", place, hint=hint)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("a string")
    text = str(value)
    if "\n" in text or "\0" in text:
        raise ValueError("a single-line string")
    return text


def _number(value: Any) -> float:
    try:
        number = amounts.number(value)
    except (TypeError, ValueError):
        raise ValueError("a positive number") from None
    return int(number) if number.is_integer() else number


def _count(value: Any) -> int:
    text = _text(value).strip()
    if not text.isdecimal():
        raise ValueError("a whole number, or 0")
    return int(text)


def _memory(value: Any) -> str:
    text = _text(value)
    try:
        amounts.memory(text)
    except ValueError:
        raise ValueError("an amount of memory") from None
    return text


def _path(value: Any) -> str:
    text = _text(value)
    if not text.startswith("/"):
        raise ValueError("an absolute path")
    return text


def _switch(value: Any) -> bool:
    names = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    switch = value if isinstance(value, bool) else names.get(str(value).lower())
    if switch is None:
        raise ValueError("true or false")
    return switch


def _lines(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [_text(item) for item in values]


def _mapping(value: Any) -> dict[str, Any]:
    from allranks.spec.yaml.load import read  # lazy: imports the models

    try:
        # Options travel as JSON.
        mapping = json.loads(json.dumps(read(value)[0] if isinstance(value, str) else value))
    except (SpecError, TypeError, ValueError):
        mapping = None
    if not isinstance(mapping, dict):
        raise ValueError("a mapping, such as {key: value}")
    return mapping


_READ = {
    Type.TEXT: _text,
    Type.NUMBER: _number,
    Type.COUNT: _count,
    Type.SWITCH: _switch,
    Type.LINES: _lines,
    Type.MEMORY: _memory,
    Type.PATH: _path,
    Type.MAPPING: _mapping,
}
