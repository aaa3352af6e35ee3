"""Single values of a home, stored as JSON by key."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, Engine, delete, insert, select

from allranks.store.database import settings as _settings


class Settings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def get(self, key: str) -> Any:
        """The value, or None."""
        with self._reading.connect() as connection:
            return _get(connection, key)

    def set(self, key: str, value: Any) -> None:
        with self._engine.begin() as connection:
            _put(connection, key, value)

    def change(self, key: str, entries: dict[str, Any]) -> None:
        """Update entries of a mapping; None removes an entry."""
        with self._engine.begin() as connection:
            merged = {**(_get(connection, key) or {}), **entries}
            _put(connection, key, {n: value for n, value in merged.items() if value is not None})


def _get(connection: Connection, key: str) -> Any:
    query = select(_settings.c.value).where(_settings.c.key == key)
    row = connection.execute(query).first()
    return None if row is None else row.value


def _put(connection: Connection, key: str, value: Any) -> None:
    connection.execute(delete(_settings).where(_settings.c.key == key))
    connection.execute(insert(_settings).values(key=key, value=value))
