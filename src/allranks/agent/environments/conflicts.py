"""Conflicts between what an environment asks for and what a node can install, and their remedies.

uv stops at the first conflict. `collect` takes the remedy of each in its place and looks for the
next one, so that one command can settle all of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from allranks.errors import AllranksError
from allranks.plan.environments.packages import NONE, normal, replaced, requirement

CANNOT = "the environment cannot be made"
# So many conflicts are looked for: each takes uv a second or so.
_ROUNDS = 10


class Conflict(NamedTuple):
    """``asked`` is what the environment asks for, as it was written; ``taken`` is what can be
    installed instead, `none` for nothing. Both are empty where the map cannot help. ``why`` is a
    sentence, ``advice`` the hint where this is the only conflict."""

    why: str
    advice: str
    asked: str = ""
    taken: str = ""


class Conflicting(AllranksError):
    """An environment cannot be made because of a conflict."""

    def __init__(self, conflict: Conflict) -> None:
        advice, pairs = conflict.advice, [conflict]
        if conflict.taken:
            advice += f": {command(pairs)}"
        super().__init__(f"{CANNOT}: {conflict.why}", hint=advice)
        self.conflict = conflict


def command(conflicts: Sequence[Conflict]) -> str:
    """The command that takes the remedy of each."""
    pairs = [word for each in conflicts if each.taken for word in (each.asked, each.taken)]
    return shlex.join(["allranks", "environment", "map", *pairs])


def collect(
    first: Conflicting, lines: Sequence[str], check: Callable[[Sequence[str]], None]
) -> AllranksError:
    """Look for all conflicts of requirement ``lines``; ``check`` raises the error of the first one
    in the lines that it is given."""
    found: list[Conflict] = []
    error: AllranksError | None = first
    for _ in range(_ROUNDS):
        if not isinstance(error, Conflicting):
            break
        _add(found, error.conflict)
        if not error.conflict.taken:
            break
        wanted = ((requirement(each.asked), each.taken) for each in found)
        table = {normal(asked): taken for asked, taken in wanted if asked is not None}
        try:
            check(replaced(lines, table.get).lines)
            error = None
            break
        except AllranksError as after:
            error = after
    if len(found) == 1 and (error is None or error is first):
        return Conflicting(found[0])
    return _all(found, error)


def _add(found: list[Conflict], conflict: Conflict) -> None:
    """Add a conflict. A later remedy for the same requirement replaces the one that led to it."""
    for number, each in enumerate(found):
        if each.asked and each.asked == conflict.asked:
            found[number] = each._replace(taken=conflict.taken)
            return
    found.append(conflict)


def _all(found: Sequence[Conflict], rest: AllranksError | None) -> AllranksError:
    """``rest`` is the error that is left when the remedies are taken."""
    reasons = [each.why for each in found]
    if rest is not None and not isinstance(rest, Conflicting):
        reasons.append(f"and after these, {rest.message.removeprefix(f'{CANNOT}: ')}")
    solvable = [each for each in found if each.taken]
    what = "all of them" if rest is None else "most of them"
    dropped = [each.asked for each in solvable if each.taken == NONE]
    hint = f"one command settles {what}: {command(solvable)}"
    if dropped:
        hint += f" (it leaves {', '.join(dropped)} out)"
    if others := [each.advice for each in found if not each.taken]:
        hint += f"; {'; '.join(others)}"
    return AllranksError(f"{CANNOT}: {'; '.join(reasons)}", hint=hint)


def parent_of(name: str, said: str) -> str:
    """The package that asks for a version of ``name``, in uv's words; empty: none does."""
    text = re.sub(r"\s+", " ", said)
    found = re.search(rf"([\w.-]+?)(?:[=<>!]\S*)? depends? on {re.escape(name)}[=<>~!]", text)
    return found[1] if found else ""
