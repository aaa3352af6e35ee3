"""From a script's arguments, which may be data, outputs and parameters, to a command with
expressions and the inputs and outputs that these name."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from allranks.spec.fields.identifiers import identifier

if TYPE_CHECKING:
    from allranks.api.common import Document

# What stands for a data reference in text.
REFERENCE = "$AZUREML_DATAREFERENCE_"
_REFERENCED = re.compile(rf"\{REFERENCE}(\w+)")


class Bound:
    """The inputs and outputs of a job or step, as in a job file."""

    def __init__(self) -> None:
        self.inputs: Document = {}
        self.outputs: Document = {}

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


def command_of(words: Iterable[Any] | str, bound: Bound, quoted: bool = True) -> str:
    """The words as one line for the shell; a text is one already. Words of a command are no
    single words: they are not ``quoted``."""
    if isinstance(words, str):
        return words
    return " ".join(_word(word, bound, quoted) for word in words)


def _word(value: Any, bound: Bound, quoted: bool) -> str:
    if isinstance(value, Bindable):
        return value.bind(bound)
    text = _REFERENCED.sub(lambda match: f"${{{{inputs.{identifier(match[1])}}}}}", str(value))
    return text if "${{" in text or not quoted else shlex.quote(text)


def of_params(params: Mapping[str, Any] | None) -> list[Any]:
    """The words of estimators' `script_params`; an empty value is a switch."""
    words: list[Any] = []
    for key, value in (params or {}).items():
        words += [key] if isinstance(value, str) and value == "" else [key, value]
    return words


def _free(taken: Document, name: str, value: Any) -> str:
    base, number = identifier(name), 1
    candidate = base
    while candidate in taken and taken[candidate] != value:
        number += 1
        candidate = f"{base}_{number}"
    taken[candidate] = value
    return candidate


def definition(job: Mapping[str, Any]) -> Document:
    """The specification of a job with the ``script`` and ``arguments`` of a run definition. Data is
    named as Azure does."""
    spec = job.get("spec") or {}
    inputs = spec.get("inputs") or {}
    parameters = job.get("parameters") or {}

    def value(match: re.Match[str]) -> str:
        kind, name = match.groups()
        entry = (parameters if kind == "search_space" else inputs).get(name, match[0])
        return f"DatasetConsumptionConfig:{name}" if isinstance(entry, Mapping) else str(entry)

    command = spec.get("command") or (spec.get("trial") or {}).get("command") or ""
    try:
        words = [_PLACE.sub(value, word) for word in shlex.split(command)]
    except ValueError:
        return dict(spec)
    if words[:1] != ["python"] or len(words) < 2:
        return dict(spec)
    return {**spec, "script": words[1], "arguments": words[2:]}


_PLACE = re.compile(r"\$\{\{\s*(inputs|search_space)\.([\w.-]+)\s*\}\}")
