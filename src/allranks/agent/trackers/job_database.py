"""Read a SQLite database that a job wrote, which may be made to take forever."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

from allranks import folder_trees

# Seconds to wait for a rank that writes, and of CPU for one use; bytes of a row.
_LOCKED, _PATIENCE, _LARGEST = 1.0, 1.0, 16 << 20


@contextlib.contextmanager
def connected(path: Path, below: Path) -> Iterator[sqlite3.Connection]:
    """The database; no link is followed ``below`` that folder. Raises OSError and sqlite3.Error, an
    OperationalError where a query takes too long. Text is read whatever bytes it has."""
    path = Path(os.path.realpath(below)) / path.relative_to(below)
    for name in (
        path,
        *(path.with_name(f"{path.name}-{end}") for end in ("journal", "wal", "shm")),
    ):
        if name == path or os.path.lexists(name):
            folder_trees.open_file(name, below=Path(os.path.realpath(below))).close()
    # Not read-only: a rank that was killed may have left a journal to be rolled back.
    uri = f"{path.as_uri()}?mode=rw"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED)) as database:
        until = time.thread_time() + _PATIENCE
        database.set_progress_handler(lambda: time.thread_time() > until, 10_000)
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST)
        database.text_factory = lambda data: data.decode(errors="replace")
        database.execute("PRAGMA trusted_schema = OFF")
        # As SQLite has resolved it: a link may have come in between.
        if database.execute("PRAGMA database_list").fetchone()[2] != str(path):
            raise sqlite3.OperationalError("it is a link")
        yield database
