"""Which job a person means: by its name, by the beginning of one, or by `@last`."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from allranks.errors import Conflict, NotFound
from allranks.server.jobs.view import submitter
from allranks.store.records import Records

LAST = ("-", "@last")
# Candidates that an error names, and jobs among which the nearest name is looked for.
_MOST, _FAR = 6, 1000
_LIST = "`allranks job list` shows those there are"


def resolve(reference: str, records: Records, person: str) -> str:
    """The name of the job that ``person`` means: an exact name, else the only job whose name begins
    so; `@last` and `-` are the newest job that they submitted and did not archive.

    Raises NotFound with the nearest names, and Conflict where several begin so.
    """
    if reference in LAST:
        return _newest(records, person)
    if reference and records.has(reference):
        return reference
    if records.ever_existed(reference):
        # Also where another job's name begins so: who deletes `foo` twice does not mean `foo-r2`.
        raise NotFound(f"the job {reference!r} was deleted", hint=_LIST)
    found = records.names_with_prefix(reference, _MOST + 1) if reference else []
    if len(found) == 1:
        return found[0]
    if found:
        more = ", …" if len(found) > _MOST else ""
        hint = f"write more of its name: {', '.join(found[:_MOST])}{more}"
        raise Conflict(f"the names of several jobs begin with {reference!r}", hint=hint)
    raise NotFound(f"there is no job named {reference!r}", hint=_nearest(reference, records))


def _newest(records: Records, person: str) -> str:
    for name, spec in records.recent():
        if submitter(spec) == person:
            return name
    hint = f"`allranks run -- COMMAND` submits one; {_LIST}"
    raise NotFound("there is no last job: you have submitted none that is not archived", hint=hint)


def _nearest(reference: str, records: Records) -> str:
    known = records.names_with_prefix("", _FAR)
    near: Sequence[str] = get_close_matches(reference, known, 3) if reference else []
    if len(reference) > 2:
        within = [name for name in known if reference.lower() in name.lower()]
        near = list(dict.fromkeys([*within, *near]))[:3]
    return f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else _LIST
