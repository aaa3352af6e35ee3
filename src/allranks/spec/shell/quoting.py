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
ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[[^]]*\])?\+?=")
# Where bash splits a variable without quotes, if the command does not change IFS.
_BLANKS = re.compile(r"[ \t\n]+")
_RESERVED = frozenset(
    (
        "if",
        "then",
        "else",
        "elif",
        "fi",
        "do",
        "done",
        "while",
        "until",
        "for",
        "select",
        "case",
        "esac",
        "in",
        "function",
        "coproc",
        "time",
        "{",
        "}",
        "!",
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


def whole(held: Held, sure: bool) -> str:
    """One word. Quotes are left out where they change nothing for a word of an argument."""
    return _word(held.value, sure) if held.value else "''"


def quoted(held: Held, sure: bool) -> str:
    """One word that is no keyword, assignment, number of a redirection or part of a `{1..9}`."""
    return f"'{held.value}'" if PLAIN.fullmatch(held.value) else whole(held, sure)


def words(held: Held, sure: bool) -> str:
    """A word for each part between blanks, none for an empty value. Only for arguments."""
    return " ".join(_word(part, sure) if part else "" for part in _BLANKS.split(held.value))


def unquoted(held: Held, sure: bool) -> str:
    """Exactly what a variable without quotes is at the same place.

    `$?` is always set, so `${?+…}` is its words: bash splits what is not quoted in them wherever it
    splits a variable, after the command's keywords, assignments and braces are recognized.
    """
    parts = re.split(r"([ \t\n]+)", held.value)
    parts[::2] = [shlex.quote(part) if part else "" for part in parts[::2]]
    return f"${{?+{''.join(parts)}}}"


def pattern(held: Held, sure: bool) -> str:
    """The right side of ``==`` or ``=~`` in ``[[ ]]``, where quotes would make it plain text."""
    if not sure or not held.value or PLAIN.fullmatch(held.value):
        return whole(held, sure)
    return f"$(printf %s {shlex.quote(held.value)})"


def has_blanks(held: Held) -> bool:
    return _BLANKS.search(held.value) is not None


def _word(word: str, sure: bool) -> str:
    if word in _RESERVED:
        return f"'{word}'"
    if PLAIN.fullmatch(word):
        return word if not sure or not ASSIGNMENT.match(word) else f"'{word}'"
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
