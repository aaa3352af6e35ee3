"""Validate the events that agents send.

A job's own processes can find their agent's token and write to its outbox, so no event from there
may make the record unreadable.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from allranks.core import text
from allranks.core.plan import Interpreter
from allranks.errors import UsageError
from allranks.events import FROM_AGENTS, Event, Kind
from allranks.statuses import Reason

# The largest integer of a database column, and the latest time that can be shown (year 5138).
_MOST = 2**31 - 1
LATEST = 1e11
# The nesting of agents' data: flat, except for a few lists.
_DEPTH = 6


def validate_event(data: Any) -> Event:
    """The event in ``data``. Raises UsageError if it is not an event that agents send."""
    if not isinstance(data, Mapping) or not isinstance(data.get("kind"), str):
        raise _wrong("it is not an event")
    unknown = data.keys() - {*Event._fields}
    checks = {name: check for name, check in _FIELDS.items() if name in data}
    bad = [name for name, check in checks.items() if not check(data[name])]
    if unknown or bad or data["kind"] not in FROM_AGENTS or "at" not in data:
        raise _wrong(", ".join(map(repr, (*sorted(map(str, unknown)), *bad))) or data["kind"][:40])
    if (flaw := text.flaw(data.get("data", {}))) is not None:
        raise _wrong(flaw.message)
    event = Event(**{**data, "kind": Kind(data["kind"])})
    wrong = [name for name, check in _DATA.items() if not check(event.data.get(name))]
    wrong += [name for name in _NEEDED.get(event.kind, ()) if event.data.get(name) is None]
    if wrong:
        raise _wrong(", ".join(wrong))
    return event


def _wrong(what: str) -> UsageError:
    hint = "agents of this version do not send this"
    return UsageError(f"invalid event: {what}", where="event", hint=hint)


def _whole(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST


def _time(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and 0 <= value <= LATEST


def _shallow(value: Any, depth: int = _DEPTH) -> bool:
    if isinstance(value, Mapping | list):
        inner = value.values() if isinstance(value, Mapping) else value
        return depth > 0 and all(_shallow(item, depth - 1) for item in inner)
    return type(value) is not int or abs(value) < 2**63


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_python(value: Any) -> bool:
    """Whether it is an ``Interpreter`` as ``pack`` writes it."""
    return (
        isinstance(value, Mapping)
        and value.keys() == {*Interpreter._fields}
        and _is_text(value["path"])
        and _is_text(value["version"])
        and _or_none(_whole)(value["packages"])
    )


_FIELDS: Mapping[str, Callable[[Any], bool]] = {
    "at": _time,
    "launch": _whole,
    "attempt": _whole,
    "node": _or_none(_whole),
    "rank": _or_none(_whole),
    "seq": _whole,
    "data": lambda value: isinstance(value, Mapping) and _shallow(value),
}

# The data of events that the fold reads.
_DATA: Mapping[str, Callable[[Any], bool]] = {
    "doing": _or_none(_is_text),
    "phase": _or_none(_is_text),
    "since": _or_none(_time),
    "address": _or_none(_is_text),
    "host": _or_none(_is_text),
    "interface": _or_none(_is_text),
    "ports": _or_none(lambda value: isinstance(value, list) and all(map(_whole, value))),
    "cpus": _or_none(_whole),
    "rdma": _or_none(lambda value: isinstance(value, bool)),
    "python": _or_none(_is_python),
    "reason": _or_none(lambda value: isinstance(value, str) and value in {*Reason}),
    "code": _or_none(lambda value: type(value) is int and abs(value) <= _MOST),
    "failed_at": _or_none(_time),
    "ended_at": _or_none(_time),
    "until": _or_none(_time),
    "message": _or_none(_is_text),
    "hint": _or_none(_is_text),
}
_NEEDED = {
    Kind.READY: ("address", "host", "ports"),
    Kind.HELD: ("reason", "until"),
    Kind.ENDED: ("reason",),
}
