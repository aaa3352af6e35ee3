"""What is only so for PostgreSQL; of other modules, only `db` knows.

Transactions that write come one after the other, as they do in SQLite, so that all that was ever
said of the record there holds here: what is read and then written has not changed in between, and
events are numbered in the order in which they can be seen. Those that only read see one moment.
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
# Numbers of PostgreSQL's advisory locks, in each database: who writes, and which server serves.
_WRITER, _SERVER = 0x616C6C01, 0x616C6C02
# Seconds: for a connection, and between looks whether the server still holds its database.
_CONNECT, _LOOK = 10, 2.0
# By the first characters of an SQLSTATE, or words of a failed connection: how to mend it.
_HINTS = {
    "28": "mend the user and password in ALLRANKS_DATABASE, or who pg_hba.conf lets in",
    "password": "mend the user and password in ALLRANKS_DATABASE, or who pg_hba.conf lets in",
    "3D": "make it: createdb NAME",
    '" does not exist': "make it, by createdb or createuser, or name another",
    "53100": "make room on PostgreSQL's disk; what agents have to say waits for it",
    "No space left": "make room on PostgreSQL's disk; what agents have to say waits for it",
    "53300": "raise max_connections: a server needs some thirty",
    "too many": "raise max_connections: a server needs some thirty",
    "25006": "it only lets itself be read: name the primary, not a standby",
    "42501": "let its user make tables: GRANT ALL ON SCHEMA public TO that user",
}
_AWAY = "start it, or look at its log; agents and ranks go on, and what they say waits for it"


def shown(where: str) -> str:
    """The URL without its password."""
    url = _url(where).set(drivername="postgresql")
    return str(url.render_as_string(hide_password=True))


def connect(where: str) -> Engine:
    """Raises AllranksError for what is no URL of such a database, or without the driver."""
    try:
        engine = create_engine(
            _url(where),
            connect_args={"connect_timeout": _CONNECT, "application_name": _name()},
            pool_pre_ping=True,
            pool_size=10,
            max_overflow=20,
            hide_parameters=True,
        )
    except ModuleNotFoundError as error:
        raise ServerError(
            f"the driver for PostgreSQL is not installed: {error}",
            where=shown(where),
            hint="pip install 'allranks[postgres]' where the server runs",
        ) from error
    event.listen(engine, "begin", _on_begin)
    return engine


def said(error: Exception) -> tuple[str, str]:
    """What the database said, in a line, and how to mend it."""
    cause = getattr(error, "orig", None) or error
    text = " ".join(str(cause).split()) or type(cause).__name__
    state = getattr(cause, "sqlstate", None) or ""
    known = (hint for key, hint in _HINTS.items() if state.startswith(key) or key in text)
    return text, next(known, _AWAY)


def number_on(connection: Connection, table: str) -> None:
    """Let numbers of new rows go on after the highest there is."""
    connection.exec_driver_sql(
        f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), max(id)) FROM {table}"
    )


class Hold:
    """A server's hold on a database: no other may serve it. It lasts as long as its connection,
    and is taken again after one was lost; ``lost`` is called when another was faster."""

    def __init__(self, where: str) -> None:
        args = {"connect_timeout": _CONNECT, "application_name": _name()}
        self._engine = create_engine(
            _url(where), poolclass=NullPool, isolation_level="AUTOCOMMIT", connect_args=args
        )
        self._where = where
        self._over = threading.Event()
        self._connection = self._take()

    def keep(self, lost: Any) -> None:
        """Look after it from now on, in a thread of its own."""
        threading.Thread(target=self._keep, args=(lost,), name="hold", daemon=True).start()

    def release(self) -> None:
        self._over.set()
        self._connection.close()

    def _take(self) -> Connection:
        connection = self._engine.connect()
        found = connection.exec_driver_sql(f"SELECT pg_try_advisory_lock({_SERVER})")
        if found.scalar_one():
            return connection
        holder = connection.exec_driver_sql(
            "SELECT min(application_name) FROM pg_stat_activity JOIN pg_locks USING (pid) "
            f"WHERE locktype = 'advisory' AND objid = {_SERVER} AND granted"
        ).scalar()
        connection.close()
        # Not a Conflict, which is to a command that it need only wait: one of its own home.
        raise ServerError(
            f"another server uses this database: {holder or 'one whose name is hidden'}",
            where=shown(self._where),
            hint="a database has one server at a time: end that one, or name it by ALLRANKS_SERVER",
        )

    def _keep(self, lost: Any) -> None:
        while not self._over.wait(_LOOK):
            try:
                self._connection.exec_driver_sql("SELECT 1")
                continue
            except DBAPIError:
                self._connection.invalidate()
                self._connection.close()
            while not self._over.wait(_LOOK / 4):
                try:
                    self._connection = self._take()
                    break
                except DBAPIError:
                    continue
                except ServerError as error:
                    log.error("%s: this server ends", error)
                    lost()
                    return


def _url(where: str) -> Any:
    try:
        url = make_url(where)
    except ArgumentError:
        url = None
    if url is None or url.drivername not in ("postgresql", "postgres") or not url.database:
        # Not shown: it may hold a password all the same.
        raise UsageError(
            "that is not the URL of a PostgreSQL database",
            where="ALLRANKS_DATABASE",
            hint=f"one is {EXAMPLE}",
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
