"""Names in a home's record, read in milliseconds: for completion, which cannot wait for SQLAlchemy.

Read-only: nothing is created, and a record that cannot be read has no names.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import Any

from allranks.settings import Home

# At most this many jobs, the newest first.
_MOST = 200


def jobs(home: Home) -> list[tuple[str, str]]:
    """The newest jobs, each with its status."""
    return _rows(home, f"SELECT name, status FROM jobs ORDER BY id DESC LIMIT {_MOST}")


def computes(home: Home) -> list[str]:
    """Those that somebody created."""
    return [name for (name,) in _rows(home, "SELECT name FROM computes ORDER BY name")]


def assets(home: Home, kind: str) -> list[str]:
    """Environments, data or models, by the kind's word."""
    query = "SELECT DISTINCT name FROM assets WHERE kind = ? AND deleted_at IS NULL ORDER BY name"
    return [name for (name,) in _rows(home, query, kind)]


def datastores(home: Home) -> list[str]:
    """Those that somebody created."""
    found = _rows(home, "SELECT value FROM settings WHERE key = 'datastores'")
    return sorted(json.loads(found[0][0])) if found else []


def states(home: Home) -> list[str]:
    """States with a name of their own."""
    try:
        return sorted(path.name for path in (home.states / "named").iterdir())
    except OSError:
        return []


def _rows(home: Home, query: str, *values: str) -> list[Any]:
    try:
        place = f"{home.database.absolute().as_uri()}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=0.5)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.Error:
        return []
