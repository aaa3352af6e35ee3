"""Schedules as rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from allranks.errors import Conflict, NotFound
from allranks.store.tables import schedules as _table


class ScheduleRow(NamedTuple):
    """A schedule. ``submission``: the job without its name. Times in seconds since the epoch;
    ``next_at`` is None for a schedule that is over. ``last`` says what its last time brought:
    ``at``, ``job`` or ``error``, and the number of ``missed`` times."""

    name: str
    spec: dict[str, Any]
    submission: dict[str, Any]
    created_at: float
    created_by: str
    enabled: bool
    next_at: float | None
    last: dict[str, Any] | None


class Schedules:
    """The schedules in a database. Thread-safe."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def list(self) -> list[ScheduleRow]:
        """All schedules by name."""
        with self._reading.connect() as connection:
            rows = connection.execute(select(_table).order_by(_table.c.name))
            return [_row(row) for row in rows]

    def get(self, name: str) -> ScheduleRow:
        """Raises NotFound."""
        with self._reading.connect() as connection:
            row = connection.execute(select(_table).where(_table.c.name == name)).first()
        if row is None:
            hint = "list them: allranks schedule list"
            raise NotFound(f"schedule {name!r} not found", hint=hint)
        return _row(row)

    def create(self, row: ScheduleRow) -> None:
        """Add a schedule. Raises Conflict if there is one of that name."""
        values = {**row._asdict(), "enabled": int(row.enabled)}
        try:
            with self._engine.begin() as connection:
                connection.execute(insert(_table).values(**values))
        except IntegrityError:
            hint = f"delete it first: allranks schedule delete {row.name}"
            raise Conflict(f"a schedule named {row.name!r} already exists", hint=hint) from None

    def change(
        self, name: str, last: Mapping[str, Any] | None = None, **columns: Any
    ) -> ScheduleRow:
        """Change ``enabled`` or ``next_at``, and what ``last`` names of the last time. Raises
        NotFound."""
        mine = _table.c.name == name
        with self._engine.begin() as connection:
            if last is not None:
                query = select(_table.c.last).where(mine).with_for_update()
                before = connection.execute(query).scalar_one_or_none()
                columns["last"] = {**(before or {}), **last}
            connection.execute(update(_table).where(mine).values(**columns))
        return self.get(name)

    def delete(self, name: str) -> None:
        """Raises NotFound."""
        self.get(name)
        with self._engine.begin() as connection:
            connection.execute(delete(_table).where(_table.c.name == name))


def _row(row: Any) -> ScheduleRow:
    fields: Mapping[str, Any] = row._mapping
    return ScheduleRow(**{**fields, "enabled": bool(row.enabled)})
