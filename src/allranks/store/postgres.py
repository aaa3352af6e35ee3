"""Everything that is specific to PostgreSQL; only `database` imports it.

Write transactions run one after another, as in SQLite. So what a transaction has read does not
change before it writes, and events become visible in the order of their ids. Read-only transactions
see one snapshot.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError
from sqlalchemy.pool import NullPool

from allranks.errors import ServerError, UsageError

log = logging.getLogger("allranks.database")

EXAMPLE = "postgresql://USER:PASSWORD@HOST/DATABASE"
# Keys of advisory locks: the writer, and the server that uses the database.
_WRITER, _SERVER = 0x616C6C01, 0x616C6C02
# Seconds to connect, and between checks that the server lock is still held.
_CONNECT_SECONDS, _CHECK_SECONDS = 10, 2.0
_LOGIN = "check the user and password in ALLRANKS_DATABASE, and pg_hba.conf"
_FULL = "free space on PostgreSQL's disk; agents keep their events until then"
_CONNECTIONS = "raise max_connections: a server needs about thirty"
# Hints by the start of an SQLSTATE, or by a part of the message.
_HINTS = {
    "28": _LOGIN,
    "password": _LOGIN,
    "3D": "create it: createdb NAME",
    '" does not exist': "create it with createdb or createuser, or use another",
    "53100": _FULL,
    "No space left": _FULL,
    "53300": _CONNECTIONS,
    "too many": _CONNECTIONS,
    "25006": "the database is read-only: use the primary, not a standby",
    "42501": "allow its user to create tables: GRANT ALL ON SCHEMA public TO USER",
}
_UNREACHABLE = (
    "start it, or see its log; jobs keep running, and agents keep their events until then"
)


def shown(where: str) -> str:
    """The URL without its password."""
    url = _url(where).set(drivername="postgresql")
    return str(url.render_as_string(hide_password=True))


def connect(where: str) -> Engine:
    """Create an engine. Raises AllranksError for an invalid URL, and if the driver is missing."""
    try:
        engine = create_engine(
            _url(where),
            connect_args={"connect_timeout": _CONNECT_SECONDS, "application_name": _name()},
            pool_pre_ping=True,
            pool_size=10,
            max_overflow=20,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise ServerError(
            f"the driver for PostgreSQL is not installed: {error}",
            where=shown(where),
            hint="install it on the server's machine: pip install 'allranks[postgres]'",
        ) from error
    event.listen(engine, "begin", _on_begin)
    return engine


def explain(error: Exception) -> tuple[str, str]:
    """The driver's message on one line, and a hint."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(cause).split()) or type(cause).__name__
    state = getattr(cause, "sqlstate", None) or ""
    hints = (hint for key, hint in _HINTS.items() if state.startswith(key) or key in text)
    return text, next(hints, _UNREACHABLE)


def reset_sequence(connection: Connection, table: str) -> None:
    """Continue the ids of a table after its highest."""
    connection.exec_driver_sql(
        f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
    )


class ServerLock:
    """A lock that allows one server for a database. It is bound to a connection, and taken again
    after the connection was lost."""

    def __init__(self, where: str) -> None:
        args = {"connect_timeout": _CONNECT_SECONDS, "application_name": _name()}
        self._engine = create_engine(
            _url(where), poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=args
        )
        self._where = where
        self._over = threading.Event()
        self._connection = self._take()

    def keep(self, lost: Any) -> None:
        """Check the lock in a thread; ``lost`` is called if another server has taken it."""
        threading.Thread(target=self._keep, args=(lost,), name="hold", daemon=True).start()

    def release(self) -> None:
        self._over.set()
        self._connection.close()

    def _take(self) -> Connection:
        connection = self._engine.connect()
        result = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_SERVER})")
        if result.scalar_one():
            return connection
        holder = connection.exec_driver_sql(
            "SELECT min(application_name) FROM pg_stat_activity JOIN pg_locks USING (pid) "
            f"WHERE locktype = 'advisory' AND objid = {_SERVER} AND granted"
        ).scalar()
        connection.close()
        # Not a Conflict, which makes a command wait for a server of its own home.
        raise ServerError(
            f"another server uses this database: {holder or 'its name is hidden'}",
            where=shown(self._where),
            hint="stop that server, or use it by setting ALLRANKS_SERVER",
        )

    def _keep(self, lost: Any) -> None:
        while not self._over.wait(_CHECK_SECONDS):
            try:
                self._connection.exec_driver_sql("SELECT 1")
                continue
            except DBAPIError:
                self._connection.invalidate()
                self._connection.close()
            while not self._over.wait(_CHECK_SECONDS / 4):
                try:
                    self._connection = self._take()
                    break
                except DBAPIError:
                    continue
                except ServerError as error:
                    log.error("%s; stopping this server", error)
                    lost()
                    return


def _url(where: str) -> Any:
    try:
        url = make_url(where)
    except ArgumentError:
        url = None
    if url is None or url.drivername not in ("postgresql", "postgres") or not url.database:
        # Do not show the value: it may contain a password.
        raise UsageError(
            "not the URL of a PostgreSQL database",
            where="ALLRANKS_DATABASE",
            hint=f"the form is {EXAMPLE}",
        )
    return url.set(drivername="postgresql+psycopg")


def _name() -> str:
    return f"allranks of {socket.gethostname()}, process {os.getpid()}"[:63]


def _on_begin(connection: Any) -> None:
    read_only = connection.get_execution_options().get("read_only", False)
    connection.exec_driver_sql(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"
        if read_only
        else f"SELECT pg_advisory_xact_lock({_WRITER})"
    )
