"""The database as one file, whatever kind it is of: an SQLite database, for backups."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path
from typing import NamedTuple

from allranks.errors import ServerError
from allranks.store.db import database_error, open_database

_DAMAGED = "take the backup of another day; of a live home: allranks doctor"


class Holds(NamedTuple):
    """What a copy holds: names of jobs, and how far each has come that has not ended: its attempt,
    and whether that has begun."""

    jobs: frozenset[str]
    live: dict[str, tuple[int, bool]]


def take(path: Path, goal: Path) -> None:
    """Copy a database, as it is at one moment, to a file; others may write to it meanwhile. Leases
    are left out. Raises ServerError, also when the copy is not sound."""
    copy(path, goal)
    with contextlib.closing(sqlite3.connect(goal)) as connection, connection:
        connection.execute("UPDATE jobs SET lease_owner = NULL, lease_until = NULL")
    check(goal)


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
