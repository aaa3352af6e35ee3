"""Which text and numbers a record can store, and a terminal and JSON can show.

A lone surrogate has no bytes in UTF-8, and a database holds no NUL. JSON has no number that is
infinite or none. A value that nests deeply, or a text of many megabytes, makes a record that nobody
can read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

# The longest text, in characters, and the deepest nesting.
LONGEST = 2 << 20
DEEPEST = 64
# A number of more digits is not read back as the same by everybody.
_DIGITS = 10**400
# What a JSON body with such a text or number holds, if it is ASCII; others may hold it, too.
_SUSPECT = re.compile(rb"\0|\\u|[eE][-+]?\d{3}|\d{200}|NaN|Infinity")
_BAD = re.compile("[\0\ud800-\udfff]")
# What is left of these are the bytes of a file's name that is not UTF-8, as Python writes them.
_BAD_IN_NAMES = re.compile("[\0\ud800-\udc7f\udd00-\udfff]")


class Flaw(NamedTuple):
    """``where`` is the key (`spec.tags.a`), in characters that can be shown."""

    message: str
    where: str


def flaw(value: Any, where: str = "", *, names: bool = False) -> Flaw | None:
    """The first thing in a JSON value that cannot be stored, or None. With ``names``, texts may
    hold the bytes of file names that are not UTF-8."""
    for message, path in _flaws(value, (), _BAD_IN_NAMES if names else _BAD):
        return Flaw(message, printable(".".join([where, *path] if where else path)))
    return None


def may_have_flaw(body: bytes) -> bool:
    """Whether ``flaw`` may find something in the value of a JSON body. In most it cannot, and
    looking at each value takes longer than to read them."""
    is_large = len(body) > LONGEST or body.count(b"[") + body.count(b"{") > DEEPEST
    return is_large or not body.isascii() or _SUSPECT.search(body) is not None


def flaw_of_text(text: str) -> str:
    """Why a text cannot be stored; empty if it can."""
    return _of_text(text, _BAD)


def repaired(value: Any, depth: int = DEEPEST) -> Any:
    """The value with U+FFFD in the place of each character that cannot be stored, None in the place
    of numbers that JSON has not, and without what nests too deeply."""
    if isinstance(value, str):
        return _BAD.sub("\ufffd", value[:LONGEST])
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int):
        return value if -_DIGITS < value < _DIGITS else None
    if isinstance(value, list | tuple):
        return None if depth == 0 else [repaired(member, depth - 1) for member in value]
    # Last, and dict first: the check for an abstract class is slow.
    if value is not None and isinstance(value, dict | Mapping):
        if depth == 0:
            return None
        return {repaired(key): repaired(member, depth - 1) for key, member in value.items()}
    return value


def nests_deeper(value: Any, depth: int = DEEPEST) -> bool:
    """Whether a JSON value has containers in more than ``depth`` others. What reads JSON refuses
    other depths in each Python, up to 50,000 in some, which what goes through it cannot follow."""
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return depth == 0 or any(nests_deeper(member, depth - 1) for member in members)


def one_line(text: str) -> str:
    """Control characters replaced by `?`."""
    return "".join(char if char.isprintable() else "?" for char in text)


def printable(text: str) -> str:
    """The text without control characters, which are shown as escapes, short enough for a
    sentence."""
    return repr(text[:200])[1:-1]


def _flaws(
    value: Any, path: tuple[str, ...], bad: re.Pattern[str]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Each flaw with its path. The common case, a text of ASCII, is one comparison."""
    if isinstance(value, str):
        if message := _of_text(value, bad):
            yield message, path
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield f"the number {value} cannot be stored", path
    elif isinstance(value, int):
        if not -_DIGITS < value < _DIGITS:
            yield "a number with that many digits cannot be stored", path
    elif isinstance(value, Mapping | list | tuple):
        if len(path) >= DEEPEST:
            yield f"values nest more than {DEEPEST} deep", path[:4]
            return
        several = value.items() if isinstance(value, Mapping) else enumerate(value)
        for key, member in several:
            if isinstance(key, str) and (message := _of_text(key, bad)):
                yield f"in a key, {message}", (*path, key[:40])
            if member is not None:
                yield from _flaws(member, (*path, str(key)[:40]), bad)


def _of_text(text: str, bad: re.Pattern[str]) -> str:
    if len(text) > LONGEST:
        return f"a text of {len(text)} characters is longer than the limit of {LONGEST}"
    match = bad.search(text)
    if match is None:
        return ""
    kind = "NUL" if match[0] == "\0" else f"the lone surrogate U+{ord(match[0]):04X}"
    return f"the text holds {kind} at character {match.start() + 1}, which cannot be stored"
