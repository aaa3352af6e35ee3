"""How a value is written into bash, for each kind of place it can stand in.

``sure`` is false after something hard to read: then all but plain letters go as ``\\xHH``, which
means nothing to bash in whatever place they really are.
"""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from allranks.errors import Problem, SpecError

PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
_RESERVED = frozenset(
    (
        *("if", "then", "else", "elif", "fi", "do", "done", "while", "until", "for", "select"),
        *("case", "esac", "in", "function", "coproc", "time", "{", "}", "!"),
    )
)


class Held(NamedTuple):
    """A value to insert. ``whole``: it stays one word outside quotes."""

    name: str
    value: str
    whole: bool


def refused(held: Held, because: str) -> SpecError:
    hint = f'first put it in a variable, `x="${{{{{held.name}}}}}"`, and use "$x" there'
    return SpecError(Problem(f"the value of `{held.name}` {because}", where="command", hint=hint))


def _hex(value: str) -> str:
    return "".join(
        letter if PLAIN.fullmatch(letter) or ord(letter) > 127 else f"\\x{ord(letter):02x}"
        for letter in value
    )


def bare(held: Held, sure: bool) -> str:
    return " ".join(_word(word, sure) for word in _words(held))


def bare_whole(held: Held, sure: bool) -> str:
    return _word(held.value, sure)


def _words(held: Held) -> list[str]:
    if held.whole:
        return [held.value]
    try:
        return shlex.split(held.value) or [held.value]
    except ValueError:  # an unbalanced quote
        return [held.value]


def _word(word: str, sure: bool) -> str:
    if word in _RESERVED:
        return f"'{word}'"
    if PLAIN.fullmatch(word):
        return word
    return shlex.quote(word) if sure else f"$'{_hex(word)}'"


def double(held: Held, sure: bool) -> str:
    if PLAIN.fullmatch(held.value) or not held.value:
        return held.value
    return re.sub(r'([\\"$`])', r"\\\1", held.value) if sure else f"\"$'{_hex(held.value)}'\""


def single(held: Held, sure: bool) -> str:
    if PLAIN.fullmatch(held.value) or not held.value:
        return held.value
    return held.value.replace("'", "'\\''") if sure else f"'$'{_hex(held.value)}''"


def ansi(held: Held, sure: bool) -> str:
    return _hex(held.value)


def remark(held: Held, sure: bool) -> str:
    return held.value if PLAIN.fullmatch(held.value) else f"$'{_hex(held.value)}'"


def heredoc(held: Held, sure: bool) -> str:
    return re.sub(r"([\\$`])", r"\\\1", verbatim(held, sure))


def verbatim(held: Held, sure: bool) -> str:
    if not sure and held.value and not PLAIN.fullmatch(held.value):
        raise refused(held, "is used in a here-document that cannot be analyzed")
    return held.value
