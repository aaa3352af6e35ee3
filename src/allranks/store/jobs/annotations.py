"""A job's display name, tags, archived flag, and the parameters that its script logged.

Unlike events, these may change at any time, and no decision depends on them. So they have a table
of their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, bindparam, select, update
from sqlalchemy.engine import Connection

from allranks import clock
from allranks.store.tables import job_annotations as _table

# Parameters that are kept of a job.
PARAMETERS = 5000
# Ids in one query: databases have a limit.
_BATCH = 500


# Built once: see `records`.
_INSERT = _table.insert()
_OF = _table.c.job_id == bindparam("of")
_PARAMETERS = select(_table.c.parameters).where(_OF).with_for_update()
_SET_PARAMETERS = update(_table).where(_OF)


class Annotation(NamedTuple):
    """``archived_at``: seconds since the epoch; None for a job that is not archived.
    ``parameters``: those that its script logged."""

    display_name: str
    tags: Mapping[str, str] = {}
    archived_at: float | None = None
    parameters: Mapping[str, str] = {}


class Annotations:
    """The annotations in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def of(self, job_id: int) -> Annotation:
        """A job's annotation; empty for a deleted job."""
        return self.several([job_id]).get(job_id, Annotation(""))

    def several(self, job_ids: Iterable[int]) -> dict[int, Annotation]:
        """Annotations by job id."""
        ids = list(job_ids)
        annotations = dict[int, Annotation]()
        with self._reading.connect() as connection:
            for start in range(0, len(ids), _BATCH):
                some = _table.c.job_id.in_(ids[start : start + _BATCH])
                annotations |= {
                    row.job_id: Annotation(
                        row.display_name, row.tags, row.archived_at, row.parameters or {}
                    )
                    for row in connection.execute(select(_table).where(some))
                }
        return annotations

    def tag(self, job_id: int, add: Mapping[str, str], remove: Iterable[str] = ()) -> None:
        """Set some tags and remove others."""
        mine, removed = _table.c.job_id == job_id, set(remove)
        with self._engine.begin() as connection:
            query = select(_table.c.tags).where(mine).with_for_update()
            tags = connection.execute(query).scalar_one_or_none() or {}
            rest = {key: value for key, value in tags.items() if key not in removed}
            connection.execute(update(_table).where(mine).values(tags=rest | dict(add)))

    def add_parameters(self, several: Mapping[int, Mapping[str, str]]) -> None:
        """Add parameters that scripts logged, by job id; the latest value of each counts."""
        with self._engine.begin() as connection:
            for job_id, add in several.items():
                had = connection.execute(_PARAMETERS, {"of": job_id}).scalar_one_or_none() or {}
                both = dict(list({**had, **add}.items())[:PARAMETERS])
                if both != had:
                    connection.execute(_SET_PARAMETERS, {"of": job_id, "parameters": both})

    def archive(self, job_id: int, archived: bool) -> None:
        """Hide a job from lists, or show it again. Idempotent."""
        is_other = _table.c.archived_at.is_(None) if archived else _table.c.archived_at.is_not(None)
        now = clock.now() if archived else None
        change = update(_table).where(_table.c.job_id == job_id, is_other)
        with self._engine.begin() as connection:
            connection.execute(change.values(archived_at=now))


def noted(name: str, spec: Mapping[str, Any]) -> Annotation:
    """The annotation of a new job, before anybody changes it."""
    return Annotation(spec.get("display_name") or name, spec.get("tags") or {})


def add(connection: Connection, job_id: int, name: str, spec: Mapping[str, Any]) -> None:
    """Add the annotation in a new job's spec."""
    connection.execute(_INSERT, {"job_id": job_id, **noted(name, spec)._asdict()})
