"""From a script's arguments, which may be data, outputs and parameters, to a command with
expressions and the inputs and outputs that these name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any, Protocol, runtime_checkable


class Bound:
    """The inputs and outputs of a job or step, as in a job file."""

    def __init__(self) -> None:
        self.inputs: dict[str, Any] = {}
        self.outputs: dict[str, Any] = {}

    def input(self, name: str, value: Any) -> str:
        """Add an input; an equal one is one. Returns the expression."""
        return f"${{{{inputs.{_free(self.inputs, name, value)}}}}}"

    def output(self, name: str, value: Any) -> str:
        """As above."""
        return f"${{{{outputs.{_free(self.outputs, name, value)}}}}}"


@runtime_checkable
class Bindable(Protocol):
    """An argument that is more than text."""

    def bind(self, bound: Bound) -> str:
        """Add what it needs; returns what stands for it in the command."""


def name_of(text: str) -> str:
    """A text as the name of an input, output or step."""
    found = re.sub(r"[^A-Za-z0-9_]+", "_", text.strip("-")).strip("_").lower()
    return found if found and not found[0].isdigit() else f"_{found}".rstrip("_") or "data"


def command_of(words: Iterable[Any] | str, bound: Bound, quoted: bool = True) -> str:
    """The words as one line for the shell; a text is one already. Words of a command are no
    single words: they are not ``quoted``."""
    if isinstance(words, str):
        return words
    return " ".join(_word(each, bound, quoted) for each in words)


def _word(given: Any, bound: Bound, quoted: bool) -> str:
    if isinstance(given, Bindable):
        return given.bind(bound)
    text = str(given)
    return text if "${{" in text or not quoted else shlex.quote(text)


def of_params(given: Mapping[str, Any] | None) -> list[Any]:
    """The words of estimators' `script_params`; an empty value is a switch."""
    found: list[Any] = []
    for key, value in (given or {}).items():
        found += [key] if isinstance(value, str) and value == "" else [key, value]
    return found


def _free(taken: dict[str, Any], name: str, value: Any) -> str:
    base, number = name_of(name), 1
    found = base
    while found in taken and taken[found] != value:
        number += 1
        found = f"{base}_{number}"
    taken[found] = value
    return found
