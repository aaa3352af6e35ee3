"""Resolve a reference to a job: a name, a unique prefix, or `@last`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from allranks.errors import Conflict, NotFound
from allranks.server.jobs.view import submitter
from allranks.store.jobs.records import Records

LAST = ("-", "@last")
# The most candidates in an error, and the most jobs to search for similar names.
_MOST, _FAR = 6, 1000
_LIST = "list jobs: allranks job list"


def resolve(reference: str, records: Records, person: str) -> str:
    """The name of the job that ``reference`` means: an exact name or a unique prefix. `@last` and
    `-` are the newest job that ``person`` submitted and did not archive.

    Raises NotFound with similar names, and Conflict for an ambiguous prefix.
    """
    if reference in LAST:
        return _newest(records, person)
    if reference and records.has(reference):
        return reference
    if records.ever_existed(reference):
        # Not resolved as a prefix: deleting `foo` twice must not delete `foo-r2`.
        raise NotFound(f"the job {reference!r} was deleted", hint=_LIST)
    matches = records.names_with_prefix(reference, _MOST + 1) if reference else []
    if len(matches) == 1:
        return matches[0]
    if matches:
        more = ", …" if len(matches) > _MOST else ""
        hint = f"use a longer prefix: {', '.join(matches[:_MOST])}{more}"
        raise Conflict(f"{reference!r} is a prefix of several job names", hint=hint)
    raise NotFound(f"job {reference!r} not found", hint=_nearest(reference, records))


def _newest(records: Records, person: str) -> str:
    for name, spec in records.recent():
        if submitter(spec) == person:
            return name
    hint = f"submit one: allranks run -- COMMAND; {_LIST}"
    raise NotFound("no last job: you have submitted no job that is not archived", hint=hint)


def _nearest(reference: str, records: Records) -> str:
    known = records.names_with_prefix("", _FAR)
    near: Sequence[str] = get_close_matches(reference, known, 3) if reference else []
    if len(reference) > 2:
        within = [name for name in known if reference.lower() in name.lower()]
        near = list(dict.fromkeys([*within, *near]))[:3]
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else _LIST
