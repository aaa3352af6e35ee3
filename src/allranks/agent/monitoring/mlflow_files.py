"""Read the metrics and parameters that ranks log to MLflow's own files, where no server is.

MLflow 3 then writes the SQLite database ``mlflow.db`` into the working folder, MLflow 2 the folder
``mlruns``. The files stay as they are: tags and models are only there.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

# Seconds between two readings while ranks run, and to wait for a rank that writes.
_PAUSE, _LOCKED = 0.5, 1.0
# The share of a CPU that reading may take.
_SHARE = 0.02
_META = re.compile(r"^(run_name|start_time|end_time): *(.*?) *$", re.MULTILINE)


class _Run(NamedTuple):
    """``began`` and ``ended`` in milliseconds since the epoch; ``ended`` is 0 while it runs."""

    id: str
    name: str
    began: int
    ended: int
    is_child: bool


class _Point(NamedTuple):
    """``at`` in milliseconds since the epoch."""

    run: str
    metric: str
    value: float
    at: int
    step: int


class _Found(NamedTuple):
    """``parameters`` are triples of run, name and value."""

    runs: list[_Run]
    points: list[_Point]
    parameters: list[tuple[str, str, str]]


_NOTHING = _Found([], [], [])


class MlflowFiles:
    """The runs in ``folder`` that begin after this was created. ``look`` appends their new points
    to the file ``into``; it is for one thread at a time."""

    def __init__(self, folder: Path, into: Path) -> None:
        self._sources = (_Database(folder / "mlflow.db"), _Folder(folder / "mlruns"))
        self._into, self._due = into, 0.0
        self._old = {run.id for source in self._sources for run in source.read().runs}
        self._first: _Run | None = None
        self._prefixes: dict[str, str] = {}
        self._parameters: dict[str, str] = {}

    def look(self, at_once: bool = False) -> None:
        """Read what is new, at most every few seconds unless ``at_once``."""
        if not at_once and time.monotonic() < self._due:
            return
        # Of this thread's CPU: on a machine that is busy the time would say nothing.
        began = time.thread_time()
        for source in self._sources:
            runs, points, parameters = source.read()
            for run in sorted(runs, key=lambda run: run.began):
                if run.id not in self._old:
                    self._name(run)
            rows = [
                [self._prefixes[run] + metric, None, step, at / 1000, value]
                for run, metric, value, at, step in points
                if run in self._prefixes
            ]
            named = {
                self._prefixes[run] + name: value
                for run, name, value in parameters
                if run in self._prefixes
            }
            new = {k: v for k, v in named.items() if self._parameters.get(k) != v}
            self._parameters |= new
            data = ({"points": rows} if rows else {}) | ({"parameters": new} if new else {})
            if data:
                line = json.dumps(data).encode() + b"\n"
                # On a full disk points are lost.
                with contextlib.suppress(OSError), self._into.open("ab", buffering=0) as file:
                    file.write(line)
        spent = time.thread_time() - began
        self._due = time.monotonic() + max(_PAUSE, spent / _SHARE)

    def _name(self, run: _Run) -> None:
        """Decide how the run's metrics are called. As with MLflow's server, a process's first run
        is the job's own, and later ones are parts of it; runs at the same time as the first one
        are those of other ranks."""
        if self._first is None or self._first.id == run.id:
            self._first = run
        later = self._first.ended and run.began >= self._first.ended
        self._prefixes.setdefault(run.id, f"{run.name}/" if run.is_child or later else "")


class _Database:
    """The SQLite database of MLflow 3."""

    _RUNS = """
        SELECT run_uuid, name, start_time, end_time,
            EXISTS (SELECT 1 FROM tags WHERE tags.run_uuid = runs.run_uuid AND key = ?)
        FROM runs"""
    _POINTS = """
        SELECT rowid, run_uuid, key, value, timestamp, step, is_nan
        FROM metrics WHERE rowid > ? ORDER BY rowid"""

    def __init__(self, path: Path) -> None:
        self._path, self._last, self._stamp = path, 0, (0, 0)

    def read(self) -> _Found:
        """All runs, and the points since the call before; nothing if the file is as it was."""
        try:
            stat = self._path.stat()
        except OSError:
            return _NOTHING
        if self._stamp == (stamp := (stat.st_mtime_ns, stat.st_size)):
            return _NOTHING
        try:
            import sqlite3  # lazy: few jobs have such a file
        except ImportError:
            return _NOTHING  # the node's Python was built without it
        try:
            # Not read-only, since a killed rank may have left a journal to be rolled back.
            uri = f"{self._path.absolute().as_uri()}?mode=rw"
            with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_LOCKED)) as database:
                # Before the runs, so that each point's run is among them.
                rows = database.execute(self._POINTS, [self._last]).fetchall()
                runs = database.execute(self._RUNS, ["mlflow.parentRunId"]).fetchall()
                parameters = database.execute("SELECT run_uuid, key, value FROM params").fetchall()
        except sqlite3.Error:
            return _NOTHING  # it is being made, or is locked
        self._stamp, self._last = stamp, max((row[0] for row in rows), default=self._last)
        return _Found(
            [_Run(id, name or id, at or 0, to or 0, bool(sub)) for id, name, at, to, sub in runs],
            [
                _Point(run, metric, _value(value, is_nan), at, step)
                for _, run, metric, value, at, step, is_nan in rows
            ],
            parameters,
        )


def _value(stored: float, is_nan: bool) -> float:
    """MLflow keeps infinity as the largest number."""
    if is_nan:
        return math.nan
    return math.copysign(math.inf, stored) if abs(stored) == sys.float_info.max else stored


class _Folder:
    """The folder of MLflow 2: ``EXPERIMENT/RUN/meta.yaml``, and beside it ``tags/NAME`` and
    ``metrics/NAME`` with a line per point: milliseconds, value, step."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sizes: dict[Path, int] = {}

    def read(self) -> _Found:
        """All runs, and the points since the call before."""
        runs = list[_Run]()
        points = list[_Point]()
        parameters = list[tuple[str, str, str]]()
        if not self._path.is_dir():
            return _NOTHING
        for meta in sorted(self._path.glob("*/*/meta.yaml")):
            folder = meta.parent
            # One that is being written is read the next time.
            with contextlib.suppress(OSError, ValueError, KeyError):
                about = dict(_META.findall(meta.read_text(errors="replace")))
                is_child = (folder / "tags/mlflow.parentRunId").exists()
                name = about.get("run_name", "").strip("'\"") or folder.name
                ended = about.get("end_time", "null")
                ended = 0 if ended == "null" else int(ended)
                runs.append(_Run(folder.name, name, int(about["start_time"]), ended, is_child))
                for path in sorted(folder.glob("metrics/**/*")):
                    points += self._points(folder, path)
                for path in sorted(folder.glob("params/**/*")):
                    if path.is_file():
                        name = str(path.relative_to(folder / "params"))
                        parameters.append((folder.name, name, path.read_text(errors="replace")))
        return _Found(runs, points, parameters)

    def _points(self, folder: Path, path: Path) -> Iterator[_Point]:
        metric = str(path.relative_to(folder / "metrics"))
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(self._sizes.get(path, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._sizes[path] = self._sizes.get(path, 0) + len(line)
                with contextlib.suppress(ValueError):
                    at, value, step = line.split()[:3]
                    yield _Point(folder.name, metric, float(value), int(at), int(step))
