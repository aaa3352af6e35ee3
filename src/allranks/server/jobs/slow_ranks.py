"""The ranks that held the others of a job, by its record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allranks.events import SLOW_RANK
from allranks.server.timestamps import iso_time
from allranks.store.jobs.job_rows import JobRow
from allranks.store.jobs.records import Records

if TYPE_CHECKING:
    from allranks.api.jobs import SlowRank


def slow_ranks_of(row: JobRow, records: Records) -> list[SlowRank]:
    """Those of the newest attempt, in the order in which they were named."""
    several: list[SlowRank] = []
    if row.plan.task.nodes * row.plan.task.procs < 2:
        return several
    for event in records.notes(row, SLOW_RANK):
        data = event.data
        if data.get("over"):
            several[-1:] = [{**one, "until": iso_time(event.at)} for one in several[-1:]]
            continue
        several.append(
            {
                "rank": event.rank,
                "node": event.node,
                "since": iso_time(float(data.get("since") or event.at)),
                "until": None,
                "share": float(data.get("share") or 0.0),
                "message": str(data.get("message")),
                "evidence": [str(sign) for sign in data.get("evidence") or ()],
                "hint": str(data.get("hint") or ""),
            }
        )
    return several
