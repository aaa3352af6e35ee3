"""Whether this version can go on with a home whose server is another one. Changes nothing there."""

from __future__ import annotations

import importlib
import re
import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import sqlalchemy as sa

from allranks import settings
from allranks.core.amounts import counted, size_text
from allranks.errors import AllranksError, Conflict, ServerError
from allranks.events import Kind
from allranks.settings import Home
from allranks.store import database_copy, postgres
from allranks.store.database import HEAD, database_error
from allranks.store.files.trees import TEMPORARY_PREFIX
from allranks.store.tables import events, jobs, versions
from allranks.version import __version__

# Bytes that must be free beside the copies of the database.
_LEAST_SPACE = 64 << 20
# Agents of that release do not say their version.
_FIRST = "0.1.0"
# So many jobs are named in an error.
_MOST = 8


class Check(NamedTuple):
    """``database``: the version of the schema, None for a home without one; ``migrates``: it is
    changed for this version. ``trial``: that was tried on a copy."""

    version: str
    database: str | None
    migrates: bool
    trial: bool


def check(home: Home) -> Check:
    """Import the server, read the settings and the database, try its migration on a copy. Raises
    AllranksError if this version cannot go on with the home, or with agents of its live jobs."""
    for module in ("app", "__main__"):
        importlib.import_module(f"allranks.server.{module}")

    settings.clocks()
    where = settings.database(home)
    if not settings.has_record(home):
        return Check(__version__, None, False, False)
    engine = postgres.connect(where) if isinstance(where, str) else _read_only(where)
    try:
        with engine.connect() as connection:
            database = str(connection.execute(sa.select(versions.c.version_num)).scalar_one())
            _require_known(database, where)
            _require_agents(connection)
    except sa.exc.DBAPIError as error:
        raise database_error(error, where) from error
    finally:
        engine.dispose()
    migrates = database != HEAD
    size = where.stat().st_size if isinstance(where, Path) and migrates else 0
    _require_space(home, _LEAST_SPACE + 3 * size)  # the backup, a copy, what a migration writes
    trial = migrates and isinstance(where, Path)
    if trial:
        _try_migration(home, Path(where))
    return Check(__version__, database, migrates, trial)


def serves(version: str) -> bool:
    """Whether this version understands agents of that one: of its own minor version, of the one
    before, and of later ones."""
    ours, theirs = _minor(__version__), _minor(version)
    if ours[0] != theirs[0]:
        return theirs > ours or (ours[1] == 0 and theirs[0] == ours[0] - 1)
    return theirs[1] >= ours[1] - 1


def _minor(version: str) -> tuple[int, int]:
    match = re.match(r"(\d{1,6})\.(\d{1,6})", version) or re.match(r"(\d)\.(\d)", _FIRST)
    assert match is not None
    return int(match[1]), int(match[2])


def _read_only(path: Path) -> sa.Engine:
    def connect() -> sqlite3.Connection:
        return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=30.0)

    return sa.create_engine("sqlite://", creator=connect, poolclass=sa.pool.NullPool)


def _require_known(database: str, where: Path | str) -> None:
    """Versions of the schema are numbered: v1, v2, …"""
    if not re.fullmatch(r"v\d{1,6}", database) or int(database[1:]) > int(HEAD[1:]):
        raise ServerError(
            f"the database has version {database}, which allranks {__version__} does not support",
            where=postgres.shown(where) if isinstance(where, str) else str(where),
            hint="a newer allranks wrote it: use that one",
        )


def _require_agents(connection: sa.Connection) -> None:
    columns = (jobs.c.name, events.c.launch, events.c.data)
    query = (
        sa.select(*columns)
        .join(events, events.c.job_id == jobs.c.id)
        .where(jobs.c.live == 1, events.c.kind == Kind.HELLO)
        .order_by(events.c.id)
    )
    # Of each job's last launch: agents of earlier ones have ended.
    agents: dict[str, tuple[int, set[str]]] = {}
    for name, launch, data in connection.execute(query):
        if agents.get(name, (-1, set()))[0] != launch:
            agents[name] = (launch, set())
        agents[name][1].add(_version(data))
    old = {
        name: min(by_node)
        for name, (_, by_node) in agents.items()
        if not all(serves(version) for version in by_node)
    }
    if old:
        shown = ", ".join(f"{name} ({version})" for name, version in [*old.items()][:_MOST])
        more = ", …" if len(old) > _MOST else ""
        raise Conflict(
            f"the agents of {counted(len(old), 'job')} are of a version that allranks "
            f"{__version__} does not understand: {shown}{more}",
            where="server restart",
            hint="wait for their end, or cancel them: `allranks job cancel NAME`; or restart with "
            "the minor version before this one first",
        )


def _version(data: Any) -> str:
    version = data.get("version") if isinstance(data, dict) else None
    return version[:40] if isinstance(version, str) else _FIRST


def _require_space(home: Home, needed: int) -> None:
    free = shutil.disk_usage(home.root).free
    if free < needed:
        message = f"{size_text(needed)} are needed on its disk, and {size_text(free)} are free"
        hint = "free space: `allranks gc`, then try again"
        raise ServerError(message, where=str(home.root), hint=hint)


def _try_migration(home: Home, database: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=TEMPORARY_PREFIX, dir=home.root) as folder:
        copy = Path(folder, database.name)
        database_copy.copy(database, copy)
        try:
            database_copy.contents(copy)
        except AllranksError as error:
            error.where = str(database)  # the copy is gone
            raise
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("SELECT 1 FROM jobs LIMIT 1")
