"""Events of an ended job as one compressed block, half of their size as rows."""

from __future__ import annotations

import json
import zlib
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.engine import Connection

from allranks.store.tables import event_blocks as _blocks
from allranks.store.tables import events as _events

# Rows of a job that are not packed. Its last event is one, so that ids go on after those in blocks:
# databases take the highest id that is there.
STAY = 1

_COLUMNS = [column for column in _events.columns if column.name != "job_id"]


def pack(connection: Connection, job_id: int) -> None:
    """Move the events of a job, but for the last, to a block."""
    mine = _events.c.job_id == job_id
    query = select(*_COLUMNS).where(mine).order_by(_events.c.id)
    rows = [[*row] for row in connection.execute(query)][:-STAY]
    if rows:
        last = rows[-1][0]
        data = zlib.compress(json.dumps(rows, separators=(",", ":")).encode())
        connection.execute(_blocks.insert().values(job_id=job_id, last=last, data=data))
        connection.execute(delete(_events).where(mine, _events.c.id <= last))


def read(
    connection: Connection, job_id: int, after: int, containing: str = ""
) -> list[dict[str, Any]]:
    """The events of a job in blocks that have an id above ``after``, by column. Blocks whose JSON
    does not have the text ``containing`` are left out."""
    query = select(_blocks.c.data).where(_blocks.c.job_id == job_id, _blocks.c.last > after)
    names = [column.name for column in _COLUMNS]
    events = []
    for data in connection.execute(query.order_by(_blocks.c.last)).scalars():
        text = zlib.decompress(data)
        rows = json.loads(text) if containing.encode() in text else []
        events += [dict(zip(names, row, strict=True)) for row in rows if row[0] > after]
    return events


def remove(connection: Connection, job_id: int) -> None:
    connection.execute(delete(_blocks).where(_blocks.c.job_id == job_id))
