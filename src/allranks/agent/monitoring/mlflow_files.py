"""Read the metrics and parameters that ranks log to MLflow's own files, where no server is.

MLflow 3 then writes the SQLite database ``mlflow.db`` into the working folder, MLflow 2 the folder
``mlruns``. The files stay as they are: tags and models are only there.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.agent.trackers.readings import BadRows, lines, parameter_text
from allranks.agent.transport.tails import read_lines
from allranks.core.text import printable

# Seconds between two readings while ranks run.
_PAUSE = 0.5
# Rows and files of one reading, and bytes of a line or a small file.
_ROWS, _FILES, _SIZE = 100_000, 100_000, 1 << 16
# Models that a note names.
_NAMED = 5
# Characters of their names.
_NAME = 255
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
    """``at`` in seconds since the epoch."""

    run: str
    metric: str
    value: float
    at: float
    step: int


class _Found(NamedTuple):
    """``parameters`` are triples of run, name and value. ``is_part``: there are more points."""

    runs: list[_Run]
    points: list[_Point]
    parameters: list[tuple[str, str, str]]
    is_part: bool = False


_NOTHING = _Found([], [], [])


class MlflowFiles:
    """The runs in ``folder`` that begin after this was created. ``look`` appends their new points
    to the file ``into``; it is for one thread at a time."""

    def __init__(self, folder: Path, into: Path) -> None:
        folder = Path(os.path.realpath(folder))
        self.bad = BadRows()
        self._sources = (
            _Database(folder / "mlflow.db", self.bad),
            _Folder(folder / "mlruns", folder, self.bad),
        )
        self._into, self._due = into, 0.0
        self._old_models, self._new_models = self._models(), set[str]()
        self._old = {run.id for source in self._sources for run in source.read().runs}
        self._first: _Run | None = None
        self._prefixes: dict[str, str] = {}
        self._parameters: dict[str, str] = {}

    def notes(self) -> list[dict[str, Any]]:
        """For the record: models that MLflow says it registered, and whether rows were damaged."""
        message = self.bad.message()
        notes = [{"message": f"MLflow's files: {message}"}] if message else []
        if new := sorted(self._new_models):
            names = ", ".join(f"`{name}`" for name in new[:_NAMED])
            names += ", …" if len(new) > _NAMED else ""
            message = (
                f"{names} is only in MLflow's own files in the working folder, not registered: "
                "pip install 'allranks[mlflow]' where the server runs, and restart the server; or "
                "allranks model register NAME --job JOB --path PATH"
            )
            notes.append({"about": "mlflow", "message": message})
        return notes

    def _models(self) -> set[str]:
        return {printable(name) for source in self._sources for name in source.models()}

    def look(self, at_once: bool = False) -> None:
        """Read what is new, at most every few seconds unless ``at_once``."""
        if not at_once and time.monotonic() < self._due:
            return
        # Of this thread's CPU: on a machine that is busy the time would say nothing.
        began = time.thread_time()
        for source in self._sources:
            while self._record(source.read(at_once)) and at_once:
                pass
        if at_once:  # before the working folder goes to the record
            self._new_models = self._models() - self._old_models
        spent = time.thread_time() - began
        self._due = time.monotonic() + max(_PAUSE, spent / _SHARE)

    def _record(self, content: _Found) -> bool:
        """Return whether there may be more."""
        for run in sorted(content.runs, key=lambda run: run.began):
            if run.id not in self._old:
                self._name(run)
        rows = [
            [self._prefixes[run] + metric, None, step, at, value]
            for run, metric, value, at, step in content.points
            if run in self._prefixes
        ]
        named = {
            self._prefixes[run] + name: value
            for run, name, value in content.parameters
            if run in self._prefixes
        }
        new = {k: v for k, v in named.items() if self._parameters.get(k) != v}
        self._parameters |= new
        data = [*lines(rows, self.bad)]
        if new:
            data.append(json.dumps({"parameters": new}).encode() + b"\n")
        # On a full disk points are lost.
        with contextlib.suppress(OSError):
            if data:
                with folder_trees.open_file(self._into, "ab") as file:
                    file.write(b"".join(data))
        return content.is_part

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
        FROM runs LIMIT ?"""
    _POINTS = """
        SELECT rowid, run_uuid, key, value, timestamp, step, is_nan
        FROM metrics WHERE rowid > ? AND EXISTS (
            SELECT 1 FROM sqlite_master WHERE name = 'metrics' AND type = 'table'
        ) ORDER BY rowid LIMIT ?"""  # a view may have rows without end
    _MODELS = "SELECT name, version FROM model_versions LIMIT ?"
    _PARAMETERS = "SELECT run_uuid, key, value FROM params LIMIT ?"

    def __init__(self, path: Path, bad: BadRows) -> None:
        self._path, self._last, self._stamp, self._bad = path, 0, (0, 0), bad
        self._count = 0

    def models(self) -> Iterable[str]:
        """The registered models, as `NAME:VERSION`."""
        if not self._path.exists():
            return []
        try:
            import sqlite3  # lazy: few jobs have such a file

            from allranks.agent.trackers.job_database import connected  # lazy: as above
        except ImportError:
            return []  # the node's Python was built without it
        try:
            with connected(self._path, self._path.parent) as database:
                rows = [*database.rows(self._MODELS, [_FILES])]
        except (OSError, sqlite3.Error):
            return []
        return [f"{str(name)[:_NAME]}:{str(version)[:_NAME]}" for name, version in rows]

    def read(self, is_last: bool = False) -> _Found:
        """All runs, and the points since the call before; nothing if the file is as it was."""
        try:
            stat = self._path.stat()
        except OSError:
            return _NOTHING
        if self._stamp == (stamp := (stat.st_mtime_ns, stat.st_size)):
            return _NOTHING
        try:
            import sqlite3  # lazy: few jobs have such a file

            from allranks.agent.trackers.job_database import connected  # lazy: as above
        except ImportError:
            return _NOTHING  # the node's Python was built without it
        try:
            with connected(self._path, self._path.parent) as database:
                # Before the runs, so that each point's run is among them.
                rows = [*database.rows(self._POINTS, [self._last, _ROWS])]
                runs = [*database.rows(self._RUNS, ["mlflow.parentRunId", _ROWS])]
                named = [*database.rows(self._PARAMETERS, [_ROWS])]
        except (sqlite3.Error, OSError) as error:
            # Else it is being made or locked, or another program's.
            if is_last and "no such" not in str(error):
                self._bad.add(error)
            return _NOTHING
        self._count += len(rows)
        if self._count > database.size:  # a virtual table, which may go on without end
            self._bad.add("it has more rows than its files have bytes")
            rows = []
        if len(rows) < _ROWS:  # else there are more
            self._stamp = stamp
        if rows:
            self._last = rows[-1][0]
        content = _Found([], [], [], is_part=len(rows) == _ROWS)
        for run, key, value in named:
            with self._bad.counted():
                content.parameters.append((run, str(key), parameter_text(value)))
        for run, name, began, ended, is_child in runs:
            with self._bad.counted():
                times = int(began or 0), int(ended or 0)
                content.runs.append(_Run(str(run), str(name or run), *times, bool(is_child)))
        for _, run, metric, value, at, step, is_nan in rows:
            with self._bad.counted():
                point = _Point(run, str(metric), _value(value, is_nan), at / 1000, step)
                content.points.append(point)
        return content


def _value(stored: float, is_nan: bool) -> float:
    """MLflow keeps infinity as the largest number."""
    if is_nan:
        return math.nan
    return math.copysign(math.inf, stored) if abs(stored) == sys.float_info.max else stored


class _Folder:
    """The folder of MLflow 2: ``EXPERIMENT/RUN/meta.yaml``, and beside it ``tags/NAME`` and
    ``metrics/NAME`` with a line per point: milliseconds, value, step."""

    def __init__(self, path: Path, below: Path, bad: BadRows) -> None:
        self._path, self._below, self._bad = path, below, bad
        self._sizes: dict[Path, int] = {}
        self._files = self._rows = 0
        self._has_too_many = False

    def models(self) -> Iterable[str]:
        """The registered models, as `NAME:VERSION`."""
        if not self._path.is_dir():
            return []
        folders = islice(self._path.glob("models/*/version-*"), _FILES)
        return [f"{path.parent.name}:{path.name.removeprefix('version-')}" for path in folders]

    def read(self, is_last: bool = False) -> _Found:
        """All runs, and the points since the call before."""
        runs = list[_Run]()
        points = list[_Point]()
        parameters = list[tuple[str, str, str]]()
        if not self._path.is_dir():
            return _NOTHING
        self._files, self._rows = 0, 0
        for meta in self._found(self._path, "*/*/meta.yaml"):
            folder = meta.parent
            # One that is being written is read the next time.
            with contextlib.suppress(OSError, ValueError, KeyError):
                about = dict(_META.findall(self._text(meta)))
                is_child = (folder / "tags/mlflow.parentRunId").exists()
                name = about.get("run_name", "").strip("'\"") or folder.name
                ended = about.get("end_time", "null")
                ended = 0 if ended == "null" else int(ended)
                runs.append(_Run(folder.name, name, int(about["start_time"]), ended, is_child))
                for path in self._found(folder, "metrics/**/*"):
                    points += self._points(folder, path)
                for path in self._found(folder, "params/**/*"):
                    with contextlib.suppress(OSError):
                        text = parameter_text(self._text(path))
                        name = str(path.relative_to(folder / "params"))
                        parameters.append((folder.name, name, text))
        return _Found(runs, points, parameters, is_part=self._rows >= _ROWS)

    def _found(self, folder: Path, pattern: str) -> list[Path]:
        """The files that match, in order, of one reading not too many."""
        paths = sorted(islice(folder.glob(pattern), _FILES - self._files))
        self._files += len(paths)
        if self._files == _FILES and not self._has_too_many:
            self._has_too_many = True
            self._bad.add(f"more than {_FILES} files are not read")
        return paths

    def _points(self, folder: Path, path: Path) -> Iterator[_Point]:
        metric = str(path.relative_to(folder / "metrics"))
        for line in self._lines(path):
            with self._bad.counted():
                at, value, step = line.split()[:3]
                yield _Point(folder.name, metric, float(value), int(at) / 1000, int(step))

    def _lines(self, path: Path) -> Iterator[bytes]:
        """The lines that are new, of one reading not too many."""
        with (
            contextlib.suppress(OSError),
            folder_trees.open_file(path, below=self._below) as file,
        ):
            while self._rows < _ROWS:
                before = self._sizes.get(path, 0)
                self._sizes[path], lines = read_lines(file, before)
                if self._sizes[path] > before:
                    self._bad.add("a hole, or 16 MB without a line end")
                if not lines:
                    return
                for line in lines.split(b"\n")[:-1][: _ROWS - self._rows]:
                    self._rows += 1
                    self._sizes[path] += len(line) + 1
                    yield line

    def _text(self, path: Path) -> str:
        """Raises OSError."""
        data = folder_trees.read_file(path, _SIZE, self._below)
        return data.decode(errors="replace")
