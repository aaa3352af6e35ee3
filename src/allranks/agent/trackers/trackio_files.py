"""Read the databases of Trackio, `PROJECT.db` in TRACKIO_DIR."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from allranks.agent.trackers import found
from allranks.agent.trackers.found import LARGEST_IMAGE, Found, Image, Point

# Rows in one part, and seconds to wait for a rank that writes.
_ROWS, _LOCKED = 5000, 1.0
_METRICS = """
    SELECT id, timestamp, run_name, step, metrics FROM metrics WHERE id > ? ORDER BY id LIMIT ?"""
_CONFIGS = "SELECT run_name, config FROM configs ORDER BY id"
# As Trackio writes what JSON lacks.
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class TrackioFile:
    """Implements ``Reader``, for what was logged from ``since`` on, in seconds since the epoch."""

    def __init__(self, path: Path, since: float = 0.0) -> None:
        self._path, self._since, self._last = path, since, 0
        self._stamp: object = None
        self._configs: dict[str, Any] = {}
        self.damage = ""

    def read(self, is_last: bool = False) -> Iterator[Found]:
        wal = self._path.with_name(f"{self._path.name}-wal")
        stats = [path.stat() for path in (self._path, wal) if path.exists()]
        stamp = [(stat.st_mtime_ns, stat.st_size) for stat in stats]
        if stamp == self._stamp:
            return
        try:
            import sqlite3  # lazy: few jobs have such a file
        except ImportError:
            self.damage = "the node's Python has no SQLite"
            return
        try:
            # Not read-only: a rank that was killed may have left what must be written first.
            uri = f"{self._path.absolute().as_uri()}?mode=rw"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED)) as database:
                for run, config in database.execute(_CONFIGS).fetchall():
                    if self._configs.get(run) != config:
                        self._configs[run] = config
                        yield Found([], _parameters(config), [], run)
                while rows := database.execute(_METRICS, [self._last, _ROWS]).fetchall():
                    self._last = rows[-1][0]
                    yield from self._parts(rows)
        except sqlite3.Error:
            return  # it is being made, or is locked
        self._stamp = stamp

    def _parts(self, rows: list[tuple[Any, ...]]) -> Iterator[Found]:
        parts: dict[str, Found] = {}
        for _, at, run, step, text in rows:
            part = parts.setdefault(run, Found([], {}, [], run))
            with contextlib.suppress(ValueError, TypeError, AttributeError, RecursionError):
                seconds = datetime.fromisoformat(at).timestamp()
                if seconds < self._since:
                    continue  # of an earlier attempt
                row = json.loads(text)
                step = _step(row, step)
                for name, value in row.items():
                    part.points.extend(
                        Point(key, step, seconds, number)
                        for key, number in found.numbers(name, _plain(value))
                    )
                    part.images.extend(self._image(name, step, value))
        yield from parts.values()

    def _image(self, name: str, step: int, value: Any) -> Iterator[Image]:
        if isinstance(value, dict) and value.get("_type") == "trackio.image":
            path = Path(str(value.get("file_path")))
            file = self._path.parent / "media" / path
            if ".." not in path.parts and file.is_file():
                is_large = file.stat().st_size > LARGEST_IMAGE
                yield Image(name, step, file.suffix, None if is_large else file)


def _step(row: dict[str, Any], step: int) -> int:
    """Transformers' Trainer logs its step beside its numbers; Trackio's own counts the calls."""
    own = row.get("train/global_step")
    return int(own) if isinstance(own, (int, float)) and own == own // 1 else step


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return _WORDS.get(value, value) if isinstance(value, str) else value


def _parameters(text: Any) -> dict[str, str]:
    """The configuration without what Trackio itself adds."""
    try:
        config = json.loads(text)
        own = {key: value for key, value in config.items() if not key.startswith("_")}
        return dict(found.parameters(own))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return {}
