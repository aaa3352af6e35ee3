"""Expressions in the inputs and outputs of steps: ``${{parent.jobs.prep.outputs.data}}``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from allranks.errors import Problem, SpecError
from allranks.spec.fields.problems import nearest

_EXPRESSION = re.compile(r"\$\{\{\s*(\S*?)\s*\}\}")


class FromStep(NamedTuple):
    """A reference to an input or an output (``kind``) of another step."""

    step: str
    kind: str
    name: str


class FromParent(NamedTuple):
    """A reference to an input of the pipeline."""

    name: str


Reference = FromStep | FromParent


def whole(text: Any) -> str | None:
    """The name in a text that is one expression and nothing else."""
    matched = _EXPRESSION.fullmatch(text.strip()) if isinstance(text, str) else None
    return matched[1] if matched else None


def is_bound(text: Any) -> bool:
    """Whether a text has an expression."""
    return isinstance(text, str) and _EXPRESSION.search(text) is not None


def references(text: str, where: str) -> Iterator[Reference]:
    """The references in an input of a step. Raises SpecError for other expressions."""
    for matched in _EXPRESSION.finditer(text):
        yield reference(matched[1], where)


def reference(name: str, where: str) -> Reference:
    """The reference of an expression's name. Raises SpecError."""
    head, _, rest = name.partition(".")
    kind, _, last = rest.partition(".")
    if head == "parent" and kind == "inputs" and last:
        return FromParent(last)
    if head == "parent" and kind == "jobs":
        step, _, more = last.partition(".")
        side, _, data = more.partition(".")
        if side in ("inputs", "outputs") and data:
            return FromStep(step, side, data)
    hint = nearest(name, _FORMS) or "write `${{parent.inputs.x}}` or `${{parent.jobs.S.outputs.o}}`"
    raise SpecError(Problem(f"`${{{{{name}}}}}` is not defined here", where, hint=hint))


_FORMS = ("parent.inputs.x", "parent.jobs.S.outputs.o", "parent.jobs.S.inputs.i")


def substituted(text: str, values: Mapping[str, Any]) -> str:
    """The text with its expressions replaced by ``values``, by name."""
    return _EXPRESSION.sub(lambda matched: str(values[matched[1]]), text)


def names(text: str) -> list[str]:
    """The names of all expressions in a text."""
    return [matched[1] for matched in _EXPRESSION.finditer(text)]
