"""What people say about a job: its display name, tags, and whether it is archived.

An event tells what happened to a job and is never changed; these may be, at any time, and no
decision depends on them. So they are a table of their own, beside the job and its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, select, update
from sqlalchemy.engine import Connection

from allranks import clock
from allranks.store.database import job_annotations as _table

# Ids in one question: databases have a limit.
_AT_ONCE = 500


class Annotation(NamedTuple):
    """``archived_at``: seconds since the epoch; None for a job that is not archived."""

    display_name: str
    tags: Mapping[str, str] = {}
    archived_at: float | None = None


class Annotations:
    """Those of one database. Safe to use from several threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def of(self, job_id: int) -> Annotation:
        """A job's; empty for a job that has been deleted meanwhile."""
        return self.several([job_id]).get(job_id, Annotation(""))

    def several(self, job_ids: Iterable[int]) -> dict[int, Annotation]:
        """By the number of their job."""
        ids, found = list(job_ids), dict[int, Annotation]()
        with self._reading.connect() as connection:
            for start in range(0, len(ids), _AT_ONCE):
                some = _table.c.job_id.in_(ids[start : start + _AT_ONCE])
                found |= {
                    row.job_id: Annotation(row.display_name, row.tags, row.archived_at)
                    for row in connection.execute(select(_table).where(some))
                }
        return found

    def tag(self, job_id: int, add: Mapping[str, str], remove: Iterable[str] = ()) -> None:
        """Set some tags and remove others; the rest stay."""
        mine, gone = _table.c.job_id == job_id, set(remove)
        with self._engine.begin() as connection:
            query = select(_table.c.tags).where(mine).with_for_update()
            tags = connection.execute(query).scalar_one_or_none() or {}
            kept = {key: value for key, value in tags.items() if key not in gone}
            connection.execute(update(_table).where(mine).values(tags=kept | dict(add)))

    def archive(self, job_id: int, archived: bool) -> None:
        """Hide a job from lists, or show it again. Twice is once."""
        is_other = _table.c.archived_at.is_(None) if archived else _table.c.archived_at.is_not(None)
        now = clock.now() if archived else None
        change = update(_table).where(_table.c.job_id == job_id, is_other)
        with self._engine.begin() as connection:
            connection.execute(change.values(archived_at=now))


def add(connection: Connection, job_id: int, name: str, spec: Mapping[str, Any]) -> None:
    """Add those that a new job's spec holds."""
    connection.execute(_table.insert().values(job_id=job_id, **values(name, spec)))


def values(name: str, spec: Any) -> dict[str, Any]:
    """The columns of a job that was submitted as ``spec``; also one that a database can hold only
    in part, as older versions let in: what cannot be searched for becomes `?`."""
    spec = spec if isinstance(spec, Mapping) else {}
    tags = spec.get("tags")
    pairs = tags.items() if isinstance(tags, Mapping) else ()
    told = {_text(key): "" if value is None else _text(value) for key, value in pairs}
    return {"display_name": _text(spec.get("display_name") or name), "tags": told}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value).encode(errors="replace").decode().replace("\0", "?")
