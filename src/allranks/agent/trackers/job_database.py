"""Read a SQLite database that a job wrote, which may be made to take forever, or to harm.

It is read as it is. What a process that was killed has left half-done is undone in a copy, for the
journal may name any file, which SQLite then removes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks import disk_space, folder_trees

# Seconds to wait for a rank that writes, and of CPU for one use; bytes of a row, and of a database
# that is read or copied.
_LOCKED, _PATIENCE, _LARGEST, _MOST = 1.0, 1.0, 16 << 20, 1 << 30
# Bytes that a rank may write while others are read.
_NEW = 1 << 20
# With this a journal ends that names another file.
_NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
_BESIDE = ("-journal", "-wal", "-shm")


class JobDatabase(NamedTuple):
    """``size``: bytes of its files without their holes, or fewer."""

    connection: sqlite3.Connection
    size: int

    def rows(self, query: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query. Raises sqlite3.OperationalError for more than the files can have: a
        view may make any number of them."""
        left = self.size + _NEW
        for row in self.connection.execute(query, values):
            left -= size_of(row)
            if left < 0:
                raise sqlite3.OperationalError("it has more rows than its files have bytes")
            yield row


def size_of(row: Sequence[Any]) -> int:
    """Bytes that a row has in a file at least."""
    return len(row) + sum(len(value) for value in row if isinstance(value, str | bytes))


@contextlib.contextmanager
def connected(path: Path, below: Path) -> Iterator[JobDatabase]:
    """The database; no link is followed ``below`` that folder. Raises OSError and sqlite3.Error, an
    OperationalError where a query takes too long. Text is read whatever bytes it has."""
    path = Path(os.path.realpath(below)) / path.relative_to(below)
    size = 0
    for name in (path, *(path.with_name(path.name + end) for end in _BESIDE)):
        if name == path or os.path.lexists(name):
            with folder_trees.open_file(name, below=os.path.realpath(below)) as file:
                size += disk_space.data_size(file.fileno(), _MOST)
    with contextlib.ExitStack() as closing:
        size = min(size, _MOST)
        database = closing.enter_context(_opened(path, "ro", size))
        try:
            database.execute("SELECT 1 FROM sqlite_master").fetchone()
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise
            folder = closing.enter_context(tempfile.TemporaryDirectory())
            copy = _copied(path, Path(os.path.realpath(below)), Path(folder))
            database = closing.enter_context(_opened(copy, "rw", size))
        yield JobDatabase(database, size)


@contextlib.contextmanager
def _opened(path: Path, mode: str, size: int) -> Iterator[sqlite3.Connection]:
    uri = f"{path.as_uri()}?mode={mode}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED)) as database:
        until = time.thread_time() + _PATIENCE
        database.set_progress_handler(lambda: time.thread_time() > until, 1000)
        # So that no step takes long: no value is larger than the files.
        database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(_LARGEST, size + _NEW))
        database.text_factory = lambda data: data.decode(errors="replace")
        database.execute("PRAGMA trusted_schema = OFF")
        # As SQLite has resolved it: a link may have come in between.
        if database.execute("PRAGMA database_list").fetchone()[2] != str(path):
            raise sqlite3.OperationalError("it is a link")
        yield database


def _copied(path: Path, below: Path, into: Path) -> Path:
    """A copy of a database with its journal. Raises OSError, and sqlite3.OperationalError if it is
    too large, or its journal names another file."""
    copy = Path(os.path.realpath(into)) / "job.db"
    for end in ("", "-journal"):
        with folder_trees.open_file(path.with_name(path.name + end), below=below) as file:
            if os.fstat(file.fileno()).st_size > _MOST:
                raise sqlite3.OperationalError("it has a journal, and is too large to be copied")
            with copy.with_name(copy.name + end).open("wb") as target:
                shutil.copyfileobj(file, target)
    with copy.with_name(f"{copy.name}-journal").open("rb") as journal:
        journal.seek(-min(len(_NAMES_ANOTHER), os.fstat(journal.fileno()).st_size), os.SEEK_END)
        if journal.read() == _NAMES_ANOTHER:
            raise sqlite3.OperationalError("its journal names another file")
    return copy
