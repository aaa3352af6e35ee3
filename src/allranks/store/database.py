"""The database: everything that differs between SQLite and PostgreSQL.

Other modules do not depend on the kind of database. `tables` has its tables, `postgres` the
statements for PostgreSQL; `database_copy` makes an SQLite file of either.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError
from sqlalchemy.sql.compiler import SQLCompiler

from allranks import settings
from allranks.errors import ServerError
from allranks.store import postgres
from allranks.store.tables import metadata, versions

# The newest migration. A new database is created from the tables below and stamped with it, because
# importing Alembic is slow; a test checks that both ways give the same schema.
HEAD = "v4"
# Pages that take some hundredths of a second to check.
_SMALL = 4096
# What SQLite says of a damaged file.
_DAMAGE = ("malformed", "not a database", "no such table")


def open_database(where: Path | str) -> sa.Engine:
    """Open the database in a file or at a URL, creating or upgrading it if necessary.

    Raises ServerError if it cannot be opened, is damaged, was written by an allranks that this one
    cannot upgrade from, or is empty while jobs are beside it.
    """
    engine = postgres.connect(where) if isinstance(where, str) else _sqlite(where)
    try:
        _upgrade(engine, where)
    except BaseException as error:
        engine.dispose()
        if isinstance(error, DBAPIError | sqlite3.Error):
            raise database_error(error, where) from error
        raise
    return engine


@contextmanager
def opened_database(where: Path | str) -> Iterator[sa.Engine]:
    """`open_database`, with its connections closed in the end."""
    engine = open_database(where)
    try:
        yield engine
    finally:
        engine.dispose()


def _sqlite(path: Path) -> sa.Engine:
    engine = sa.create_engine(
        f"sqlite:///{path}", connect_args={"timeout": 30.0}, hide_parameters=True
    )
    # Plans contain users' variables, so the file is private whatever the folder's mode. SQLite
    # gives its other files the same mode.
    path.touch(mode=0o600)
    turns = _Turns()
    sa.event.listen(engine, "connect", _on_connect)
    sa.event.listen(engine, "begin", turns.begin)
    sa.event.listen(engine, "checkin", turns.end)
    return engine


def lock_database(where: Path | str) -> postgres.ServerLock | None:
    """Lock a PostgreSQL database for this server. Returns None for SQLite, where the home's lock
    suffices. Raises ServerError if another server holds it, or it cannot be used."""
    if isinstance(where, Path):
        return None
    with opened_database(where):
        pass  # raises if the database is unusable
    try:
        return postgres.ServerLock(where)
    except DBAPIError as error:
        raise database_error(error, where) from error


def insert_many(
    connection: sa.Connection, table: sa.Table, rows: Sequence[tuple[Any, ...]]
) -> None:
    """Insert rows given in the order of the table's columns. Bypasses SQLAlchemy's handling of
    parameters, which takes ten times as long as the database."""
    if not rows:
        return
    compiled = _insert(table, connection.dialect)
    names = [column.name for column in table.columns]
    if compiled.positional:
        assert compiled.positiontup == names
        connection.exec_driver_sql(str(compiled), list(rows))
    else:
        dicts = [dict(zip(names, row, strict=True)) for row in rows]
        connection.exec_driver_sql(str(compiled), dicts)


@lru_cache(maxsize=16)
def _insert(table: sa.Table, dialect: sa.Dialect) -> SQLCompiler:
    compiled = table.insert().compile(dialect=dialect)
    assert isinstance(compiled, SQLCompiler)
    return compiled


def reset_sequences(connection: sa.Connection, filled: Sequence[sa.Table]) -> None:
    """Continue ids after the highest that was inserted explicitly into these tables."""
    if connection.dialect.name == "postgresql":
        for table in filled:
            if "id" in table.columns:
                postgres.reset_sequence(connection, table.name)


def has_member(
    connection: sa.Connection, column: sa.ColumnElement[Any], key: str, value: str | None
) -> sa.ColumnElement[bool]:
    """Whether a JSON object of texts has a member of that key, and of that value unless None."""
    if connection.dialect.name == "postgresql":
        extracted: sa.ColumnElement[str] = column[key].as_string()
        return extracted.is_not(None) if value is None else extracted == value
    member = sa.func.json_each(column).table_valued("key", "value")
    same = [member.c.key == key] + ([] if value is None else [member.c.value == value])
    # SQLite reads JSON more slowly than text.
    text = sa.cast(column, sa.Text).contains(json.dumps(key), autoescape=True)
    return sa.and_(text, sa.exists(sa.select(1).select_from(member).where(*same)))


def database_error(error: Exception, where: Path | str) -> ServerError:
    """The error to show for an exception of a database driver."""
    if isinstance(where, str):
        message, hint = postgres.explain(error)
        shown = postgres.shown(where)
        return ServerError(f"the database cannot be used: {message}", where=shown, hint=hint)
    message = str(getattr(error, "orig", None) or error)
    if any(phrase in message for phrase in _DAMAGE):
        hint = settings.restore_hint(settings.Home(where.parent))
        return ServerError(f"the database is damaged: {message}", where=str(where), hint=hint)
    hint = "check the file's permissions, and whether another program has locked it"
    if "full" in message:
        hint = "free space on that disk, then try again; agents keep their events until then"
    return ServerError(f"the database cannot be used: {message}", where=str(where), hint=hint)


def _on_connect(connection: Any, _: Any) -> None:
    # Disable the driver's transaction handling, which cannot begin with IMMEDIATE.
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute("PRAGMA journal_mode=WAL")
    cursor.execute("PRAGMA synchronous=NORMAL")
    cursor.execute("PRAGMA foreign_keys=ON")
    cursor.close()


class _Turns:
    """Lets one thread of this process write at a time. SQLite itself makes writers sleep, up to a
    tenth of a second, and then look whether the database is free."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def begin(self, connection: Any) -> None:
        # A transaction that reads and then writes fails with "database is locked" if another wrote
        # in between. IMMEDIATE waits for the write lock at the start.
        read_only = connection.get_execution_options().get("read_only", False)
        if not read_only and not connection.info.get(self):
            self._lock.acquire()
            connection.info[self] = True
        connection.exec_driver_sql("BEGIN" if read_only else "BEGIN IMMEDIATE")

    def end(self, _: Any, record: Any) -> None:
        """Called when a connection goes back to the pool."""
        if record.info.pop(self, False):
            self._lock.release()


def check_small(engine: sa.Engine) -> None:
    """Raise an error of the driver, or ServerError, if a SQLite file is damaged that is so small
    that this takes no time. In larger ones, damage shows once it is read."""
    if engine.dialect.name == "sqlite":
        with engine.execution_options(read_only=True).connect() as connection:
            pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
            if pages <= _SMALL:
                result = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar_one()
                if result != "ok":
                    raise sqlite3.DatabaseError(f"malformed: {result}")


def reserve_pages(engine: sa.Engine, size: int) -> None:
    """Let a SQLite database grow by ``size`` bytes without space on its disk, and write its log.
    Takes pages and frees them if fewer than half as many are free. Raises the driver's errors."""
    if engine.dialect.name != "sqlite":
        return
    with engine.execution_options(read_only=True).connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA freelist_count").scalar_one()
        if pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one() >= size // 2:
            return
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS reserve (data BLOB)")
        connection.exec_driver_sql("INSERT INTO reserve VALUES (zeroblob(?))", (size,))
    with engine.begin() as connection:  # in another transaction: else the pages are never written
        connection.exec_driver_sql("DROP TABLE reserve")


def _upgrade(engine: sa.Engine, where: Path | str) -> None:
    with engine.execution_options(read_only=True).connect() as connection:
        version = _version(connection)
    if version is None:
        if isinstance(where, Path):
            home = settings.Home(where.parent)
            if where == home.database:  # not a copy that is being made
                settings.require_no_jobs(home)
        with engine.begin() as connection:
            version = _version(connection)  # another process may have created it meanwhile
            if version is None:
                metadata.create_all(connection)
                connection.execute(versions.insert().values(version_num=HEAD))
                return
    if version != HEAD:
        _migrate(engine, version, where)


def version_of(where: str) -> str | None:
    """The version of a PostgreSQL database, which stays as it is; None for an empty one. Raises
    AllranksError."""
    engine = postgres.connect(where)
    try:
        with engine.connect() as connection:
            return _version(connection)
    except DBAPIError as error:
        raise database_error(error, where) from error
    finally:
        engine.dispose()


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return str(connection.execute(sa.select(versions.c.version_num)).scalar_one())


def _migrate(engine: sa.Engine, version: str, where: Path | str) -> None:
    from alembic.util.exc import CommandError  # lazy: 0.3 s, and only after an upgrade

    from allranks.store import migrations  # lazy: imports Alembic

    try:
        migrations.upgrade(engine)
    except CommandError as error:
        raise ServerError(
            f"the database has version {version}, which this allranks does not support",
            where=str(where) if isinstance(where, Path) else postgres.shown(where),
            hint="use the allranks that wrote it (a newer one, or one from before the first "
            "release), or another ALLRANKS_HOME",
        ) from error
