"""Rows of the events table as values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import delete, select
from sqlalchemy.engine import Connection

from allranks.core.packing import pack
from allranks.events import Event, Kind
from allranks.store.jobs import event_blocks
from allranks.store.tables import events as _events


class StoredEvent(NamedTuple):
    """An event with its id."""

    id: int
    event: Event


_INSERT = _events.insert()


def insert_events(connection: Connection, job_id: int, events: Sequence[Event]) -> None:
    rows = [{**event._asdict(), "kind": str(event.kind), "job_id": job_id} for event in events]
    if rows:
        connection.execute(_INSERT, [{**row, "data": pack(row["data"])} for row in rows])


def read_events(connection: Connection, job_id: int, after: int) -> list[StoredEvent]:
    """A job's events with an id above ``after``, in order."""
    query = select(_events).where(_events.c.job_id == job_id, _events.c.id > after)
    rows = connection.execute(query.order_by(_events.c.id)).mappings()
    stored: list[Mapping[str, Any]] = [*event_blocks.read(connection, job_id, after), *rows]
    return [StoredEvent(row["id"], _event(row)) for row in stored]


def read_notes(
    connection: Connection, job_id: int, about: str, launch: int, attempt: int
) -> list[Event]:
    """An attempt's notes about one thing, in order."""
    query = select(_events).where(
        _events.c.job_id == job_id,
        _events.c.kind == str(Kind.NOTE),
        _events.c.launch == launch,
        _events.c.attempt == attempt,
    )
    rows = connection.execute(query.order_by(_events.c.id)).mappings()
    stored = [*event_blocks.read(connection, job_id, 0, json.dumps(about)), *rows]
    place = (str(Kind.NOTE), launch, attempt)
    return [
        _event(row)
        for row in stored
        if (row["kind"], row["launch"], row["attempt"]) == place
        and row["data"].get("about") == about
    ]


def delete_events(connection: Connection, job_id: int) -> None:
    event_blocks.remove(connection, job_id)
    connection.execute(delete(_events).where(_events.c.job_id == job_id))


def _event(row: Mapping[str, Any]) -> Event:
    return Event(**{name: row[name] for name in Event._fields} | {"kind": Kind(row["kind"])})
