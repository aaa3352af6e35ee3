"""Read the databases of Trackio, `PROJECT.db` in TRACKIO_DIR."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from allranks.agent.trackers import readings
from allranks.agent.trackers.readings import PIECE, BadRows, Image, Point, Reading

# Rows in one part, and configurations.
_ROWS, _RUNS = 5000, 10_000
_METRICS = f"""
    SELECT rowid, timestamp, run_name, step, metrics FROM metrics
    WHERE rowid > ? AND run_name = coalesce(?, run_name) ORDER BY rowid LIMIT {_ROWS}"""
_NAMES = f"SELECT DISTINCT run_name FROM metrics ORDER BY run_name LIMIT {_RUNS}"
_CONFIGS = f"SELECT run_name, config FROM configs ORDER BY rowid LIMIT {_RUNS}"
# As Trackio writes what JSON lacks.
_WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


class TrackioFile:
    """Implements ``Reader``, for what was logged from ``since`` on, in seconds since the epoch, by
    one run or all."""

    def __init__(
        self, path: Path, since: float = 0.0, below: Path | None = None, run: str | None = None
    ) -> None:
        self._path, self._since, self._last = path, since, 0
        self._below, self._run = below or path.parent, run
        self._stamp: object = None
        self._configs: dict[str, Any] = {}
        self.damage, self.bad = "", BadRows()

    def read(self, is_last: bool = False) -> Iterator[Reading]:
        if self.damage:
            return
        wal = self._path.with_name(f"{self._path.name}-wal")
        stats = [path.stat() for path in (self._path, wal) if path.exists()]
        stamp = [(stat.st_mtime_ns, stat.st_size) for stat in stats]
        if stamp == self._stamp:
            return
        try:
            import sqlite3  # lazy: few jobs have such a file

            from allranks.agent.trackers.job_database import (  # lazy: as above
                connected,
                size_of,
            )
        except ImportError:
            self.damage = "the node's Python has no SQLite"
            return
        try:
            with connected(self._path, self._below) as database:
                for run, config in database.rows(_CONFIGS):
                    if self._configs.get(run) != config and self._run in (None, run):
                        self._configs[run] = config
                        yield Reading([], self._parameters(config), [], str(run))
            read = 0
            while True:  # each time anew: a use may take a second
                with connected(self._path, self._below) as database:
                    rows = list(_some(database.rows(_METRICS, [self._last, self._run])))
                read += sum(map(size_of, rows))
                if read > database.size + PIECE:  # a view, which may go on without end
                    self.damage = "it has more rows than its files have bytes"
                if not rows or self.damage:
                    break
                self._last = rows[-1][0]
                yield from self._parts(rows)
        except sqlite3.Error as error:
            # Else it is being made or locked, or another program's.
            if is_last and "no such" not in str(error):
                self.damage = str(error)
            return
        self._stamp = stamp

    def _parts(self, rows: list[tuple[Any, ...]]) -> Iterator[Reading]:
        parts: dict[str, Reading] = {}
        for _, at, run, step, text in rows:
            part = parts.setdefault(str(run), Reading([], {}, [], str(run)))
            with self.bad.counted():
                seconds = datetime.fromisoformat(at).timestamp()
                if seconds < self._since:
                    continue  # of an earlier attempt
                row = json.loads(text)
                step = _step(row, step)
                part.points.extend(
                    Point(key, step, seconds, number)
                    for key, number in readings.short(
                        item for k, v in row.items() for item in readings.numbers(k, _plain(v))
                    )
                )
                for name, value in row.items():
                    part.images.extend(self._image(name, step, value))
        yield from parts.values()

    def _image(self, name: str, step: int, value: Any) -> Iterator[Image]:
        if isinstance(value, dict) and value.get("_type") == "trackio.image":
            path = Path(str(value.get("file_path")))
            yield Image(name, step, path.suffix, self._path.parent / "media" / path)

    def _parameters(self, text: Any) -> dict[str, str]:
        """The configuration without what Trackio itself adds."""
        parameters: dict[str, str] = {}
        with self.bad.counted():
            config = json.loads(text)
            own = {key: value for key, value in config.items() if not key.startswith("_")}
            parameters.update(readings.short(readings.parameters(own)))
        return parameters


def run_names(path: Path) -> list[str]:
    """The runs of a database, which may be another program's: none then."""
    import sqlite3  # lazy: few folders have such a file

    from allranks.agent.trackers.job_database import connected  # lazy: as above

    try:
        with connected(path, path.parent) as database:
            return [str(name) for (name,) in database.rows(_NAMES)]
    except (OSError, sqlite3.Error):
        return []


def _some(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The first rows, of bounded size."""
    size = 0
    for row in rows:
        yield row
        size += len(row[-1]) if isinstance(row[-1], str | bytes) else 0
        if size > PIECE:
            return


def _step(row: dict[str, Any], step: int) -> int:
    """Transformers' Trainer logs its step beside its numbers; Trackio's own counts the calls."""
    own = row.get("train/global_step")
    return int(own) if isinstance(own, (int, float)) and own == own // 1 else step


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return _WORDS.get(value, value) if isinstance(value, str) else value
