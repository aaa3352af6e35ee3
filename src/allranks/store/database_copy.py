"""The database as one file, whatever kind it is of: an SQLite database, for backups."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Engine, func, select
from sqlalchemy.exc import DBAPIError

from allranks.errors import ServerError
from allranks.store.database import (
    database_error,
    jobs,
    metadata,
    number_on,
    open_database,
    versions,
)

# Rows that are in memory at a time.
_AT_ONCE = 5_000

_DAMAGED = "take the backup of another day; of a live home: allranks doctor"


class Holds(NamedTuple):
    """What a copy holds: names of jobs, and how far each has come that has not ended: its attempt,
    and whether that has begun."""

    jobs: frozenset[str]
    live: dict[str, tuple[int, bool]]


def take(where: Path | str, goal: Path) -> None:
    """Copy a database, as it is at one moment, to a file; others may write to it meanwhile. Leases
    are left out. Raises ServerError, also when the copy is not sound."""
    if isinstance(where, Path):
        copy(where, goal)
    else:
        try:
            _pour(open_database(where).execution_options(read_only=True), open_database(goal))
        except DBAPIError as error:
            raise database_error(error, where) from error
    with contextlib.closing(sqlite3.connect(goal)) as connection:
        connection.execute("UPDATE jobs SET lease_owner = NULL, lease_until = NULL")
        connection.commit()
        connection.execute("PRAGMA journal_mode=DELETE")
    check(goal)


def load(path: Path, where: str) -> None:
    """Make a database of another kind what a copy holds, all at once. Raises ServerError."""
    try:
        _pour(open_database(path), open_database(where))
    except DBAPIError as error:
        raise database_error(error, where) from error


def _pour(source: Engine, goal: Engine) -> None:
    """In the place of all that ``goal`` has; each is read, and written, in one transaction."""
    try:
        with source.connect() as reading, goal.begin() as writing:
            tables = [table for table in metadata.sorted_tables if table is not versions]
            for table in reversed(tables):
                writing.execute(table.delete())
            for table in tables:
                rows = reading.execute(select(table), execution_options={"yield_per": _AT_ONCE})
                for several in rows.mappings().partitions():
                    writing.execute(table.insert(), [dict(row) for row in several])
            number_on(writing, tables)
    finally:
        source.dispose()
        goal.dispose()


def copy(path: Path, goal: Path) -> None:
    """The same of any SQLite database, as it is."""
    try:
        with (
            contextlib.closing(sqlite3.connect(path, timeout=30.0)) as source,
            contextlib.closing(sqlite3.connect(goal)) as found,
        ):
            # In one step: page by page, it would begin anew with each write of a busy server.
            source.backup(found, pages=-1)
            found.execute("PRAGMA journal_mode=DELETE")
    except sqlite3.Error as error:
        raise database_error(error, path) from error


def check(path: Path) -> None:
    """Raises ServerError unless the file is a sound database."""
    try:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            loose = connection.execute("PRAGMA foreign_key_check").fetchall()
    except sqlite3.Error as error:
        raise database_error(error, path) from error
    if found != ["ok"] or loose:
        what = found[0] if found != ["ok"] else f"{len(loose)} rows refer to others that are gone"
        raise ServerError(f"the database is damaged: {what}", where=str(path), hint=_DAMAGED)


def count(where: Path | str) -> int:
    """How many jobs a database has. Raises ServerError."""
    engine = open_database(where)
    try:
        with engine.execution_options(read_only=True).connect() as connection:
            return int(connection.execute(select(func.count()).select_from(jobs)).scalar_one())
    except DBAPIError as error:
        raise database_error(error, where) from error
    finally:
        engine.dispose()


def holds(path: Path) -> Holds:
    """What that copy holds, brought up to date. Raises ServerError, also when it is of a newer
    allranks."""
    open_database(path).dispose()
    begun = ("Running", "Finalizing")
    query = "SELECT name, live, status, json_extract(record, '$.attempt') FROM jobs"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        rows = connection.execute(query).fetchall()
    live = {name: (int(attempt), status in begun) for name, live, status, attempt in rows if live}
    return Holds(frozenset(row[0] for row in rows), live)
