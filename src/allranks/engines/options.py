"""Options of an engine, as data: declared once, they are flags, keys, help and checks."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from allranks.errors import Problem, SpecError
from allranks.plan import amounts
from allranks.plan.environments.container import ENGINES


class Type(StrEnum):
    """What a value is. LINES is a list of texts; alone, one text is a list of one. MEMORY is kept
    as it is written: an amount with its unit. PATH is absolute: doors see to that."""

    TEXT = "text"
    NUMBER = "number"
    SWITCH = "switch"
    LINES = "lines"
    MEMORY = "memory"
    PATH = "path"


class Option(NamedTuple):
    """``help`` is what `compute create --help` says. ``connects``: it says which cluster is meant,
    so that it is the compute's alone and no job's; all others a job may set for itself.
    ``variable`` is one of the caller's environment that stands for it where it is not given;
    ``choices``: what a text may be, where that is not free."""

    name: str
    help: str
    type: Type = Type.TEXT
    default: Any = None
    connects: bool = False
    variable: str | None = None
    choices: tuple[str, ...] = ()


# What every compute has, of each node.
COMMON = (
    Option("cpus", "CPUs of each node", Type.NUMBER),
    Option("memory", "memory of each node, such as 4g", Type.MEMORY),
    Option(
        "container",
        f"what jobs with an image run under, of the nodes' programs: {', '.join(ENGINES)} (none)",
        choices=ENGINES,
    ),
    Option(
        "cache",
        "the nodes' folder for data from elsewhere, best on their own disk (in ALLRANKS_HOME)",
        Type.PATH,
    ),
    Option("cache_limit", "what that folder may hold, such as 500g (its disk)", Type.MEMORY),
)


def check(
    declared: Sequence[Option], given: Mapping[str, Any], where: str, *, of_job: bool = False
) -> dict[str, Any]:
    """``given`` as values of the declared types. Raises SpecError with every problem there is.

    ``where`` is the key they stand under. ``of_job``: those that say which cluster are refused.
    """
    known = {option.name: option for option in declared if not (of_job and option.connects)}
    found: dict[str, Any] = {}
    problems = []
    for name, value in given.items():
        place = f"{where}.{name}" if where else name
        option = known.get(name.replace("-", "_"))
        if option is None:
            problems.append(_unknown(name, place, known))
            continue
        try:
            found[option.name] = _READ[option.type](value)
            if option.choices and found[option.name] not in option.choices:
                raise ValueError(" or ".join(option.choices))
        except ValueError as error:
            problems.append(Problem(f"{value!r} is not {error}", place, hint=option.help))
    if problems:
        raise SpecError(problems)
    return found


def defaults(declared: Sequence[Option]) -> dict[str, Any]:
    return {option.name: option.default for option in declared if option.default is not None}


def connection(declared: Sequence[Option], values: Mapping[str, Any]) -> dict[str, Any]:
    """Of ``values``, what says which cluster is meant."""
    names = {option.name for option in declared if option.connects}
    return {name: value for name, value in values.items() if name in names}


def _unknown(name: str, place: str, known: Mapping[str, Option]) -> Problem:
    near = difflib.get_close_matches(name, known, 1, 0.6)
    has = f"its options: {', '.join(known)}" if known else "it has no options"
    hint = f"did you mean `{near[0]}`?" if near else has
    return Problem(f"there is no option {name!r}", place, hint=hint)


def _text(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError("a text")
    text = str(value)
    if "\n" in text or "\0" in text:
        raise ValueError("a text of one line")
    return text


def _number(value: Any) -> float:
    try:
        number = amounts.number(value)
    except (TypeError, ValueError):
        raise ValueError("a positive number") from None
    return int(number) if number.is_integer() else number


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
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise ValueError("true or false")
    return found


def _lines(value: Any) -> list[str]:
    values = value if isinstance(value, list | tuple) else [value]
    return [_text(each) for each in values]


_READ = {
    Type.TEXT: _text,
    Type.NUMBER: _number,
    Type.SWITCH: _switch,
    Type.LINES: _lines,
    Type.MEMORY: _memory,
    Type.PATH: _path,
}
