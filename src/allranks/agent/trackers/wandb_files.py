"""Read W&B's run files, `wandb/run-…/run-ID.wandb`, which online and offline runs write.

The file is a log of LevelDB's format: blocks of 32 KiB with chunks of a checksum, a length and a
kind. Each record is a message of wandb's `proto/wandb_internal.proto`.
"""

from __future__ import annotations

import errno
import json
import os
import struct
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.agent.trackers import readings
from allranks.agent.trackers.protobuf import all_fields, fields, signed
from allranks.agent.trackers.readings import PIECE, BadRows, Image, Point, Reading
from allranks.core.metrics import metric_lines

_START = struct.Struct("<4sHB")
_MARK = (b":W&B", 0xBEE1)
_CHUNK = struct.Struct("<IHB")
_BLOCK = 32 << 10
# Bytes of a record; the metrics whose steps are other metrics, and beginnings of their names, which
# each name is compared with; metrics with a last value.
_RECORD, _DEFINED, _PATTERNS, _NAMES = 32 << 20, 1000, 100, 100_000
_JSON = json.JSONDecoder()
_WHOLE, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
# What is wrong with the file of a run that was killed.
CUT_OFF = "cut off"
# Fields of a Record.
_HISTORY, _SUMMARY, _CONFIG, _METRIC, _RUN, _EXIT = 2, 3, 5, 12, 17, 18


class WandbFile:
    """Implements ``Reader``. ``began`` and ``exit_code`` are None until they are known; ``below``
    is as in ``folder_trees.open_file``."""

    def __init__(self, path: Path, below: Path | None = None) -> None:
        self._path, self._below, self._offset = path, below, 0
        self._record: list[bytes] | None = None
        self._size, self._is_cut = 0, False
        # The metrics that tell the step of others, by name, or by how names begin.
        self._steps: dict[str, str] = {}
        self._patterns: dict[str, str] = {}
        self._logged: set[str] = set()
        self._summary: dict[str, float] = {}
        self._step, self._at = 0, 0.0
        self.damage, self.bad = "", BadRows()
        self.run, self.project = "", ""
        self.began: float | None = None
        self.exit_code: int | None = None

    def read(self, is_last: bool = False) -> Iterator[Reading]:
        part, start = Reading([], {}, [], self.run), self._offset
        for record in self._records():
            with self.bad.counted():
                self._take(record, part)
            if self._offset - start > PIECE:
                yield part._replace(run=self.run)
                part, start = Reading([], {}, [], self.run), self._offset
        if is_last and self._is_cut:
            self.damage = self.damage or f"{CUT_OFF} at byte {self._offset}"
        if is_last:  # some numbers are only in the summary
            only = {k: v for k, v in self._summary.items() if k not in self._logged}
            self._logged |= {*only}
            part.points.extend(Point(name, self._step, self._at, v) for name, v in only.items())
        yield part._replace(run=self.run)

    # ------------------------------------------------------------ records

    def _records(self) -> Iterator[bytes]:
        """The records that are new, and an empty one after each block."""
        with folder_trees.open_file(self._path, below=self._below, buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if self._offset == 0:
                if size < _START.size:
                    return
                if _START.unpack(file.read(_START.size))[:2] != _MARK:
                    self.damage = "it is no W&B run"
                    return
                self._offset = _START.size
            while True:
                self._offset = max(self._offset, _data(file.fileno(), self._offset, size))
                end = (self._offset // _BLOCK + 1) * _BLOCK
                block = os.pread(file.fileno(), end - self._offset, self._offset)
                yield from self._chunks(block, end)
                yield b""
                if self._offset < end:
                    self._is_cut = any(os.pread(file.fileno(), _BLOCK, self._offset))
                    return

    def _chunks(self, block: bytes, end: int) -> Iterator[bytes]:
        """The records that end in the rest of a block, which ends at ``end`` in the file."""
        at, start = 0, self._offset
        is_whole = start + len(block) == end
        while at + _CHUNK.size <= len(block):
            checksum, length, kind = _CHUNK.unpack_from(block, at)
            body = block[at + _CHUNK.size : at + _CHUNK.size + length]
            if len(body) < length and not is_whole:
                return  # it is being written
            if not _WHOLE <= kind <= _LAST or zlib.crc32(bytes([kind]) + body) != checksum:
                if not is_whole:
                    return
                if any(block[at:]):  # the rest of a block may be empty
                    self.damage = f"damaged at byte {start + at}"
                    self._record = None
                break
            at += _CHUNK.size + length
            self._offset = start + at
            if kind in (_WHOLE, _FIRST):
                self._record, self._size = [], 0
            self._size += length
            if self._size > _RECORD and self._record is not None:
                self._record = None
                self.bad.add(f"it is larger than {_RECORD >> 20} MB")
            if self._record is not None:
                self._record.append(body)
                if kind in (_WHOLE, _LAST):
                    record = b"".join(self._record)
                    self._record = None
                    yield record
        if is_whole:
            self._offset = end

    def _take(self, record: bytes, part: Reading) -> None:
        for number, content in fields(record):
            if number == _HISTORY:
                self._history(content, part)
            elif number == _SUMMARY:
                items = _row(content).items()
                self._summary.update(readings.short(n for i in items for n in readings.numbers(*i)))
                if len(self._summary) > _NAMES:
                    self._summary.clear()
                    raise ValueError(f"the summary has more than {_NAMES} numbers")
            elif number == _CONFIG:
                self._configured(content, part)
            elif number == _METRIC:
                texts = {n: text.decode(errors="replace") for n, text in fields(content)}
                name, pattern, step = texts.get(1), texts.get(2, ""), texts.get(4)
                if step and name and len(self._steps) < _DEFINED:
                    self._steps[name] = step
                elif step and pattern.endswith("*") and len(self._patterns) < _PATTERNS:
                    self._patterns[pattern[:-1]] = step
            elif number == _RUN:
                self._begun(content, part)
            elif number == _EXIT:
                self.exit_code = next((int(v) for n, v in all_fields(content) if n == 1), 0)

    def _begun(self, run: bytes, part: Reading) -> None:
        identity = ""
        for number, content in fields(run):
            if number == 1:
                identity = content.decode(errors="replace")
            elif number == 3:
                self.project = content.decode(errors="replace")
            elif number == 4:
                self._configured(content, part)
            elif number == 8:
                self.run = content.decode(errors="replace")
            elif number == 17:
                self.began = next((float(v) for n, v in all_fields(content) if n == 1), None)
        self.run = self.run or identity

    def _configured(self, content: bytes, part: Reading) -> None:
        part.parameters.update(readings.short(readings.parameters(_row(content))))

    def _history(self, content: bytes, part: Reading) -> None:
        row = _row(content, hidden=True)
        step, at = row.get("_step"), row.get("_timestamp")
        if not isinstance(step, int):
            for number, value in fields(content):
                if number == 2:
                    step = next((signed(int(v)) for n, v in all_fields(value) if n == 1), 0)
        if step is not None and not isinstance(step, int):
            raise ValueError(f"its step is {step!r}")
        if not isinstance(at, (int, float, type(None))):
            raise ValueError(f"its time is {at!r}")
        self._at = metric_lines.timestamp(at or self._at)
        self._step = step or 0
        metrics = {key: value for key, value in row.items() if not key.startswith("_")}
        steps = {key: self._step_of(key, row) for key in metrics}
        for name, (key, figure) in readings.short(
            (inner, (outer, number))
            for outer, value in metrics.items()
            for inner, number in readings.numbers(outer, value)
        ):
            self._logged.add(name)
            part.points.append(Point(name, steps[key], self._at, figure))
        for key, value in metrics.items():
            if isinstance(value, dict):
                part.images.extend(self._images(key, steps[key], value))

    def _step_of(self, name: str, row: dict[str, Any]) -> int:
        """The step of a metric: that of another metric, if the script has defined it so."""
        of_patterns = (step for like, step in self._patterns.items() if name.startswith(like))
        which = self._steps.get(name) or next(of_patterns, "")
        step = row.get(which)
        return int(step) if isinstance(step, (int, float)) and step == step // 1 else self._step

    def _images(self, name: str, step: int, value: dict[str, Any]) -> Iterator[Image]:
        kind = value.get("_type")
        paths = [value.get("path")] if kind == "image-file" else value.get("filenames")
        if kind not in ("image-file", "images/separated") or not isinstance(paths, Sequence):
            return
        folder = self._path.parent / "files"
        for path in map(str, paths):
            yield Image(name, step, Path(path).suffix, folder / path)


def _data(file: int, offset: int, size: int) -> int:
    """Where the block begins that has the next data: a file may have a hole of any size."""
    try:
        return os.lseek(file, offset, os.SEEK_DATA) // _BLOCK * _BLOCK
    except OSError as error:
        return size if error.errno == errno.ENXIO else offset


def _row(content: bytes, hidden: bool = False) -> dict[str, Any]:
    """The values of a history, a summary or a configuration, without those that are W&B's own
    unless ``hidden``."""
    row: dict[str, Any] = {}
    for number, item in fields(content):
        if number == 1:
            path, value = _item(item)
            into = row
            for key in path[:-1]:
                below = into.setdefault(key, {})
                into = below if isinstance(below, dict) else {}
            into[path[-1]] = value
    return row if hidden else {k: v for k, v in row.items() if not k.startswith("_")}


def _item(item: bytes) -> tuple[list[str], Any]:
    """The path of keys of a value, and the value."""
    key, nested = "", list[str]()
    value: Any = None
    for which, data in all_fields(item):
        if isinstance(data, int):
            value = bool(data) if which == 4 else _unzigzag(data) if which == 5 else value
        elif which in (8, 16):
            value, _ = _JSON.raw_decode(data.decode(errors="surrogatepass"))
        elif which == 1:
            key = data.decode(errors="replace")
        elif which == 2:
            nested.append(data.decode(errors="replace"))
        elif which == 6:
            value = struct.unpack("<d", data)[0]
        elif which == 7:
            value = data.decode(errors="replace")
    return nested or [key], value


def _unzigzag(value: int) -> int:
    return (value >> 1) ^ -(value & 1)
