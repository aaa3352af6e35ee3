"""Single values of a home, stored as JSON by key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, bindparam, delete, insert, select

from allranks.store.tables import settings as _settings

T = TypeVar("T")
# Built once: each submission reads several values, and building takes longer than reading.
_VALUE = select(_settings.c.value).where(_settings.c.key == bindparam("wanted"))
_READ: ContextVar[dict[object, Any] | None] = ContextVar("values read", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """Within the block this thread reads each value and the computes once: a hundred steps of a
    pipeline are planned with the same ones."""
    token = _READ.set({})
    try:
        yield
    finally:
        _READ.reset(token)


def remembered(key: object, read: Callable[[], T]) -> T:
    """What ``read`` returns; within ``read_once`` it is called once for a key."""
    if (values := _READ.get()) is None:
        return read()
    if key not in values:
        values[key] = read()
    value: T = values[key]
    return value


class Settings:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)

    def get(self, key: str) -> Any:
        """The value, or None."""

        def read() -> Any:
            with self._reading.connect() as connection:
                return _get(connection, key)

        return remembered((id(self._engine), key), read)

    def set(self, key: str, value: Any) -> None:
        with self._engine.begin() as connection:
            _put(connection, key, value)

    def change(self, key: str, entries: dict[str, Any]) -> None:
        """Update entries of a mapping; None removes an entry."""
        with self._engine.begin() as connection:
            merged = {**(_get(connection, key) or {}), **entries}
            _put(connection, key, {n: value for n, value in merged.items() if value is not None})


def _get(connection: Connection, key: str) -> Any:
    row = connection.execute(_VALUE, {"wanted": key}).first()
    return None if row is None else row.value


def _put(connection: Connection, key: str, value: Any) -> None:
    connection.execute(delete(_settings).where(_settings.c.key == key))
    connection.execute(insert(_settings).values(key=key, value=value))
