"""Rows of the events table as values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from sqlalchemy import Row
from sqlalchemy.engine import Connection

from allranks.events import Event, Kind
from allranks.plan.plan import pack
from allranks.store.database import events as _events


class StoredEvent(NamedTuple):
    """An event with its id."""

    id: int
    event: Event


_INSERT = _events.insert()


def insert_events(connection: Connection, job_id: int, events: Sequence[Event]) -> None:
    rows = [{**event._asdict(), "kind": str(event.kind), "job_id": job_id} for event in events]
    if rows:
        connection.execute(_INSERT, [{**row, "data": pack(row["data"])} for row in rows])


def read_event(row: Row[Any]) -> Event:
    return Event(
        Kind(row.kind), row.at, row.launch, row.attempt, row.node, row.rank, row.seq, row.data
    )
