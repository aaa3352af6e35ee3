"""What a home remembers that is one value: by key, as JSON."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, delete, insert, select

from allranks.store.db import settings as _settings


class Settings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def get(self, key: str) -> Any:
        """The value; None when there is none."""
        query = select(_settings.c.value).where(_settings.c.key == key)
        with self._reading.connect() as connection:
            found = connection.execute(query).first()
        return None if found is None else found.value

    def set(self, key: str, value: Any) -> None:
        with self._engine.begin() as connection:
            connection.execute(delete(_settings).where(_settings.c.key == key))
            connection.execute(insert(_settings).values(key=key, value=value))

    def change(self, key: str, entries: dict[str, Any]) -> None:
        """Put entries into a mapping; those that are None are taken out."""
        with self._engine.begin() as connection:
            query = select(_settings.c.value).where(_settings.c.key == key)
            row = connection.execute(query).first()
            found = {**(row.value if row is not None else {}), **entries}
            kept = {name: value for name, value in found.items() if value is not None}
            connection.execute(delete(_settings).where(_settings.c.key == key))
            connection.execute(insert(_settings).values(key=key, value=kept))
