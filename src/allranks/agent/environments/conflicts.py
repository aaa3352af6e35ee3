"""Conflicts between an environment's requirements and what a node can install.

uv stops at the first conflict. `collect` applies the replacement for each and continues, so that
one command can resolve all of them.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from allranks.core.environments.packages import NONE, normal, replaced, requirement
from allranks.errors import AllranksError

CANNOT = "cannot build the environment"
ALLOW = "--allow-builds (in an environment's file: `allow_builds: true`)"
# Conflicts to look for: each takes uv about a second.
_MAX_CONFLICTS = 10


class Conflict(NamedTuple):
    """``requested``: the requirement as the user wrote it. ``replacement``: what can be installed
    instead, or `none` to leave it out. Both are empty if `allranks environment map` cannot help.
    ``advice``: the hint if this is the only conflict. ``is_buildable``: it may be built from
    source, which takes long."""

    reason: str
    advice: str
    requested: str = ""
    replacement: str = ""
    is_buildable: bool = False


class Conflicting(AllranksError):
    """An environment cannot be built because of conflicts; the sentence is about the first."""

    def __init__(self, conflict: Conflict, *more: Conflict) -> None:
        advice, pairs = conflict.advice, [conflict]
        if conflict.replacement:
            advice += f": {command(pairs)}"
        advice += _or_build(pairs)
        super().__init__(f"{CANNOT}: {conflict.reason}", hint=advice)
        self.conflict = conflict
        self.conflicts = (conflict, *more)


def command(conflicts: Sequence[Conflict]) -> str:
    """The command that applies all replacements."""
    pairs = [
        word
        for conflict in conflicts
        if conflict.replacement
        for word in (conflict.requested, conflict.replacement)
    ]
    return shlex.join(["allranks", "environment", "map", *pairs])


class Conflicts(NamedTuple):
    """All conflicts of an environment. ``remaining``: the error that their replacements do not
    resolve."""

    several: Sequence[Conflict]
    remaining: AllranksError | None

    @property
    def are_solved(self) -> bool:
        return self.remaining is None and all(conflict.replacement for conflict in self.several)

    @property
    def python(self) -> str:
        """The Python that replaces the requested one, if it is another."""
        pythons = (item for item in self.several if item.requested.startswith("python="))
        return next((item.replacement for item in pythons), "")

    def table(self) -> dict[str, str]:
        """The replacements of packages, as `environment map` has them."""
        pairs = ((requirement(item.requested), item.replacement) for item in self.several)
        return {normal(named): replacement for named, replacement in pairs if named is not None}

    def error(self, first: Conflicting) -> AllranksError:
        """One error for all."""
        if len(self.several) == 1 and self.remaining in (None, first):
            return Conflicting(self.several[0])
        return _combined_error(self.several, self.remaining)


def collect(
    first: Conflicting, lines: Sequence[str], check: Callable[[Sequence[str]], None]
) -> Conflicts:
    """Find all conflicts of the requirement ``lines``. ``check`` raises the error of the first
    conflict in the lines it is given."""
    conflicts: list[Conflict] = []
    error: AllranksError | None = first
    for _ in range(_MAX_CONFLICTS):
        if not isinstance(error, Conflicting):
            break
        for conflict in error.conflicts:
            _add(conflicts, conflict)
        if not all(conflict.replacement for conflict in error.conflicts):
            break
        try:
            check(replaced(lines, Conflicts(conflicts, None).table().get).lines)
            error = None
            break
        except AllranksError as next_error:
            error = next_error
    return Conflicts(conflicts, error)


def _add(conflicts: list[Conflict], conflict: Conflict) -> None:
    """Add a conflict, or the new replacement for a requirement whose replacement conflicted."""
    for number, other in enumerate(conflicts):
        if other.requested and other.requested == conflict.requested:
            conflicts[number] = other._replace(replacement=conflict.replacement)
            return
    conflicts.append(conflict)


def _combined_error(
    conflicts: Sequence[Conflict], remaining: AllranksError | None
) -> AllranksError:
    """``remaining``: the error that the replacements do not resolve."""
    reasons = [conflict.reason for conflict in conflicts]
    if remaining is not None and not isinstance(remaining, Conflicting):
        reasons.append(f"and after these, {remaining.message.removeprefix(f'{CANNOT}: ')}")
    solvable = [conflict for conflict in conflicts if conflict.replacement]
    which = "all of them" if remaining is None else "most of them"
    dropped = [conflict.requested for conflict in solvable if conflict.replacement == NONE]
    hint = f"one command resolves {which}: {command(solvable)}"
    if dropped:
        hint += f" (it leaves {', '.join(dropped)} out)"
    if others := [conflict.advice for conflict in conflicts if not conflict.replacement]:
        hint += f"; {'; '.join(others)}"
    hint += _or_build(conflicts)
    return AllranksError(f"{CANNOT}: {'; '.join(reasons)}", hint=hint)


def _or_build(conflicts: Sequence[Conflict]) -> str:
    if not any(conflict.is_buildable for conflict in conflicts):
        return ""
    return f"; or build from source, which can take many minutes: {ALLOW}"


def parent_of(name: str, output: str) -> str:
    """The package that requires ``name``, according to uv's output; '' if none."""
    text = re.sub(r"\s+", " ", output)
    match = re.search(rf"([\w.-]+?)(?:[=<>!]\S*)? depends? on {re.escape(name)}[=<>~!]", text)
    return match[1] if match else ""
