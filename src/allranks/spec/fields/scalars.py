"""Text fields, also for values that YAML reads as something else.

``version: 1.10`` and ``FLAG: true`` are a number and a boolean in YAML; text fields get them as
written.
"""

from __future__ import annotations

import datetime
import os
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field

from allranks.spec.fields.durations import EXAMPLES, seconds_of

if TYPE_CHECKING:
    # For type checkers: a list field accepts any sequence and keeps a tuple.
    _Item = TypeVar("_Item", covariant=True)
    Several = Sequence[_Item]
else:

    class Several:
        def __class_getitem__(cls, item: Any) -> Any:
            return tuple[item, ...]


class Whole(int):
    """An int that remembers how it was written: ``007``."""

    written: str


class Real(float):
    """A float that remembers how it was written: ``1.10``."""

    written: str


class Wrong(ValueError):
    """A value is invalid: the message, and a hint how to fix it."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


def _text(value: object) -> object:
    if isinstance(value, Whole | Real):
        return value.written
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, datetime.date):
        return value.isoformat()
    return value


def _path(value: object) -> object:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _text_or_empty(value: object) -> object:
    return "" if value is None else _text(value)


def _no_nul(value: str) -> str:
    if "\0" in value:
        raise Wrong("must not hold a NUL byte", "command lines and variables cannot hold one")
    return value


def _counted(value: object) -> object:
    if isinstance(value, bool):
        raise Wrong(f"must be a number, not `{str(value).lower()}`", "write it in digits")
    return _bare(value)


def _seconds(value: object) -> object:
    if not isinstance(value, str):
        return _counted(value)
    try:
        return seconds_of(value)
    except ValueError:
        hint = f"a number of seconds, or {EXAMPLES}"
        raise Wrong("must be a duration", hint) from None


def matching(pattern: str, message: str, hint: str) -> Callable[[str], str]:
    """A check that the whole text matches; ``message`` completes "`name` must …"."""
    compiled = re.compile(pattern, re.ASCII)

    def check(value: str) -> str:
        if not compiled.fullmatch(value):
            raise Wrong(message, hint)
        return value

    return check


Text = Annotated[str, BeforeValidator(_text), AfterValidator(_no_nul)]
PathText = Annotated[Text, BeforeValidator(_path)]
EmptyableText = Annotated[str, BeforeValidator(_text_or_empty), AfterValidator(_no_nul)]
Texts = dict[Text, EmptyableText]
Integer = Annotated[int, BeforeValidator(_counted)]
Count = Annotated[Integer, Field(ge=1)]
Port = Annotated[Integer, Field(ge=1, le=65535)]
Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)]


def _bare(value: Any) -> Any:
    """The same tree with plain numbers, without their original spelling."""
    if isinstance(value, dict):
        return {key: _bare(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_bare(item) for item in value]
    if isinstance(value, Whole):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def sendable(value: Any) -> Any:
    """The same tree for JSON: numbers that JSON would write differently (`1.10`, `007`) become
    text."""
    if isinstance(value, dict):
        return {key: sendable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [sendable(item) for item in value]
    odd = isinstance(value, Whole | Real) and value.written != repr(_bare(value))
    return value.written if odd else value


Free = Annotated[dict[Text, Any], BeforeValidator(_bare)]
Name = Annotated[
    Text,
    AfterValidator(
        matching(
            r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}",
            "must have 1 to 255 letters, digits, `-`, `_` or `.`, and start with a letter or digit",
            "as in `digits` or `digits-2`; it is used in paths and URLs",
        )
    ),
]
# Its folders have the number of a launch behind it, and at most 255 letters.
JobName = Annotated[
    Name,
    AfterValidator(matching(r".{1,250}", "must have at most 250 letters", "choose a shorter one")),
]
DataName = Annotated[
    Text,
    AfterValidator(
        matching(
            r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}",
            "must have 1 to 255 letters, digits, `_`, `-` or `.`, and not start with `-` or `.`",
            "as in `data`, `my-data` or `1x`; it is used for a folder and a variable of the job",
        )
    ),
]
Variable = Annotated[
    Text,
    AfterValidator(
        matching(r"[^=]+", "must not be empty or hold `=`", "write `NAME: value`, one per line")
    ),
]
Module = Annotated[
    Text,
    AfterValidator(
        matching(
            r"[^\W\d]\w*(\.[^\W\d]\w*)*",
            "must be the name of a Python module",
            "as `import` takes it: `torch.distributed`",
        )
    ),
]
