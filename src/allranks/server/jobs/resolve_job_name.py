"""Resolve a reference to a job: a name, a unique prefix, or the newest (`-`, `@last`)."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from allranks.errors import Conflict, NotFound
from allranks.server.jobs.view import submitter
from allranks.store.jobs.records import Records

LAST = ("-", "@last")
# The most candidates in an error, and the most jobs to search for similar names.
_MOST, _FAR = 6, 1000
_LIST = "list jobs: allranks job list"


class Newest(NamedTuple):
    """The newest job of a "terminal" or a "user"."""

    name: str
    of: str


def resolve(reference: str, records: Records, whole: bool = False) -> str:
    """The name of the job that ``reference`` means: an exact name or, unless ``whole``, a unique
    prefix. A job and its restarts count as one: the prefix goes on to mean the first.

    Raises NotFound with similar names, and Conflict for an ambiguous prefix.
    """
    if reference and records.has(reference):
        return reference
    if records.ever_existed(reference):
        # Not resolved as a prefix: deleting `foo` twice must not delete `foo-r2`.
        raise NotFound(f"the job {reference!r} was deleted", hint=_LIST)
    has_prefix = reference and not whole
    matches = _without_restarts(records.names_with_prefix(reference, _FAR)) if has_prefix else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = ", …" if len(matches) > _MOST else ""
        hint = f"use a longer prefix: {', '.join(matches[:_MOST])}{more}"
        raise Conflict(f"{reference!r} is a prefix of several job names", hint=hint)
    raise NotFound(f"job {reference!r} not found", hint=_nearest(reference, records))


def original(name: str) -> str:
    """The name of the job that a job of this name restarts, if it is a restart."""
    return re.sub(r"-r\d+$", "", name)


def _without_restarts(names: Sequence[str]) -> list[str]:
    """The names without those of restarts of others among them."""
    return [name for name in names if original(name) == name or original(name) not in names]


def newest(records: Records, person: str, mine: Collection[str]) -> Newest:
    """The newest job of those named ``mine``, or else of ``person``, that is not archived. Raises
    NotFound."""
    for name, _ in records.recent(mine) if mine else ():
        return Newest(name, "terminal")
    for name, spec in records.recent():
        if submitter(spec) == person:
            return Newest(name, "user")
    hint = f"submit one: allranks run -- COMMAND; {_LIST}"
    raise NotFound("no last job: you have submitted no job that is not archived", hint=hint)


def _nearest(reference: str, records: Records) -> str:
    names = records.names_with_prefix("", _FAR)
    near: Sequence[str] = get_close_matches(reference, names, 3) if reference else []
    if len(reference) > 2:
        within = [name for name in names if reference.lower() in name.lower()]
        near = list(dict.fromkeys([*within, *near]))[:3]
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else _LIST
