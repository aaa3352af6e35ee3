"""Names in a home's database, for shell completion, which cannot wait for SQLAlchemy to import.

Read-only: creates nothing, and returns no names if the database cannot be read.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from allranks.settings import Home

_MOST = 200


def jobs(home: Home) -> list[tuple[str, str]]:
    """Name and status of the newest jobs."""
    return _rows(home, f"SELECT name, status FROM jobs ORDER BY id DESC LIMIT {_MOST}")


def computes(home: Home) -> list[str]:
    return [name for (name,) in _rows(home, "SELECT name FROM computes ORDER BY name")]


def schedules(home: Home) -> list[str]:
    return [name for (name,) in _rows(home, "SELECT name FROM schedules ORDER BY name")]


def assets(home: Home, kind: str) -> list[str]:
    """Names of assets of a kind, such as ``data``."""
    query = "SELECT DISTINCT name FROM assets WHERE kind = ? AND deleted_at IS NULL ORDER BY name"
    return [name for (name,) in _rows(home, query, kind)]


def datastores(home: Home) -> list[str]:
    rows = _rows(home, "SELECT value FROM settings WHERE key = 'datastores'")
    return sorted(json.loads(rows[0][0])) if rows else []


def states(home: Home) -> list[str]:
    """Named state folders."""
    try:
        return sorted(path.name for path in (home.states / "named").iterdir())
    except OSError:
        return []


def _rows(home: Home, query: str, *values: str) -> list[Any]:
    try:
        uri = f"{home.database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=0.5)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.Error:
        return []
