"""Copy a database to or from one SQLite file, for backups."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, LargeBinary, func, select
from sqlalchemy.exc import DBAPIError

from allranks.errors import ServerError
from allranks.store.database import database_error, opened_database, reset_sequences
from allranks.store.tables import jobs, metadata, versions

# Rows in memory at a time; a full block of points takes 39 KB.
_BATCH, _BATCH_OF_BLOCKS = 5_000, 100

_DAMAGED = "use an older backup; for a home in use, run allranks doctor"


class Contents(NamedTuple):
    """The jobs in a copy by name; for ``live`` ones the attempt and whether its ranks have
    started."""

    jobs: frozenset[str]
    live: dict[str, tuple[int, bool]]


def take(where: Path | str, destination: Path) -> None:
    """Copy a consistent snapshot of a database to a file, while others may write to it. Raises
    ServerError, also if the copy is damaged."""
    if isinstance(where, Path):
        copy(where, destination)
    else:
        try:
            with opened_database(where) as source, opened_database(destination) as target:
                _copy_rows(source.execution_options(read_only=True), target)
        except DBAPIError as error:
            raise database_error(error, where) from error
    try:
        with contextlib.closing(sqlite3.connect(destination)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise database_error(error, where) from error
    check(destination)


def load(path: Path, where: str) -> None:
    """Replace the contents of a PostgreSQL database by a copy, in one transaction. Raises
    ServerError."""
    try:
        with opened_database(path) as source, opened_database(where) as target:
            _copy_rows(source, target)
    except DBAPIError as error:
        raise database_error(error, where) from error


def _copy_rows(source: Engine, target: Engine) -> None:
    """Replace all rows of ``target``; one transaction reads, and one writes."""
    with source.connect() as reading, target.begin() as writing:
        tables = [table for table in metadata.sorted_tables if table is not versions]
        for table in reversed(tables):
            writing.execute(table.delete())
        for table in tables:
            large = any(isinstance(column.type, LargeBinary) for column in table.columns)
            options = {"yield_per": _BATCH_OF_BLOCKS if large else _BATCH}
            rows = reading.execute(select(table), execution_options=options)
            for batch in rows.mappings().partitions():
                writing.execute(table.insert(), [dict(row) for row in batch])
        reset_sequences(writing, tables)


def copy(path: Path, destination: Path) -> None:
    """Copy any SQLite database unchanged. Raises ServerError."""
    try:
        with (
            contextlib.closing(sqlite3.connect(path, timeout=30.0)) as source,
            contextlib.closing(sqlite3.connect(destination)) as target,
        ):
            # In one step: in parts, it would restart with each write of a busy server.
            source.backup(target, pages=-1)
            target.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise database_error(error, path) from error


def check(path: Path) -> None:
    """Raise ServerError if the file is not an intact database."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            result = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            dangling = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error as error:
        raise database_error(error, path) from error
    if result != ["ok"] or dangling:
        what = result[0] if result != ["ok"] else f"{len(dangling)} rows refer to missing rows"
        raise ServerError(f"the database is damaged: {what}", where=str(path), hint=_DAMAGED)


def count(where: Path | str) -> int:
    """The number of jobs in a database. Raises ServerError."""
    try:
        with (
            opened_database(where) as engine,
            engine.execution_options(read_only=True).connect() as connection,
        ):
            return int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())
    except DBAPIError as error:
        raise database_error(error, where) from error


def contents(path: Path) -> Contents:
    """Upgrade a copy and list its jobs. Raises ServerError, like `open_database`."""
    with opened_database(path):
        pass
    started = ("Running", "Finalizing")
    query = "SELECT name, live, status, json_extract(record, '$.attempt') FROM jobs"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        rows = connection.execute(query).fetchall()
    live = {name: (int(attempt), status in started) for name, live, status, attempt in rows if live}
    return Contents(frozenset(row[0] for row in rows), live)
