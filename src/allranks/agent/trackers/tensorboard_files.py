"""Read TensorBoard's event files: scalars, images and hyperparameters.

A file is a row of records: length, checksum, an Event of tensorflow/core/util/event.proto, and its
checksum. Checksums are not computed, because in Python that takes longer than all else; only that
of a length with which a record would be longer than the file.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.agent.trackers import readings
from allranks.agent.trackers.protobuf import all_fields, fields, signed
from allranks.agent.trackers.readings import LARGEST_IMAGE, PIECE, BadRows, Image, Point, Reading

_HEAD, _TAIL = 12, 4
# Numbers in a tensor: by its dtype as they are in `tensor_content`, and by field.
_PACKED = {1: "f", 2: "d", 3: "i", 9: "q", 19: "e"}
_VALUES = {5: "f", 6: "d"}
_STRING = 7
# SessionLog's status.
_START = 1
_HPARAMS = "_hparams_/session_start_info"
_TEXT = "/text_summary"
_SUFFIXES = {b"\x89PNG": ".png", b"\xff\xd8\xff": ".jpg", b"GIF8": ".gif", b"RIFF": ".webp"}


class EventFile:
    """Implements ``Reader``. ``offset``: the end of the records read so far. ``tags``: those that
    the files of its folder have so far, which a restart with a `purge_step` is about."""

    def __init__(self, path: Path, below: Path | None = None, tags: set[str] | None = None) -> None:
        self._path, self._below, self.offset = path, below, 0
        self._tags = set[str]() if tags is None else tags
        self.damage, self.bad = "", BadRows()

    def read(self, is_last: bool = False) -> Iterator[Reading]:
        with folder_trees.open_file(self._path, below=self._below, buffering=0) as file:
            while not self.damage:
                data = os.pread(file.fileno(), PIECE, self.offset)
                if len(data) < _HEAD:
                    return
                length = int.from_bytes(data[:8], "little")
                size = _HEAD + length + _TAIL
                if size > len(data):
                    if os.fstat(file.fileno()).st_size < self.offset + size:
                        if not _is_length(data[:_HEAD]):
                            self.damage = f"damaged at byte {self.offset}"
                        return  # it is being written
                    if length > LARGEST_IMAGE + PIECE:
                        self.offset += size
                        head = data[_HEAD : _HEAD + 1000]
                        yield Reading([], {}, [Image(_tag(head), 0, "", None)])
                        continue
                    data = os.pread(file.fileno(), size, self.offset)
                yield self._part(data)

    def _part(self, data: bytes) -> Reading:
        part, at = Reading([], {}, []), 0
        while at + _HEAD <= len(data):
            length = int.from_bytes(data[at : at + 8], "little")
            end = at + _HEAD + length
            if end + _TAIL > len(data):
                break
            if not length:
                self.damage = f"damaged at byte {self.offset + at}"
                break
            with self.bad.counted():
                _event(data[at + _HEAD : end], part, self._tags)
            at = end + _TAIL
        self._tags.update(point.name for point in part.points)
        self.offset += at
        return part


def _is_length(head: bytes) -> bool:
    """Whether the checksum of a record's length fits: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in head[:8]:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ 0x82F63B78 * (crc & 1)
    crc ^= 0xFFFFFFFF
    masked = ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
    return masked == int.from_bytes(head[8:], "little")


def _event(event: bytes, part: Reading, tags: Iterable[str]) -> None:
    at, step = 0.0, 0
    summaries = []
    for number, content in all_fields(event):
        if isinstance(content, int):
            step = signed(content) if number == 2 else step
        elif number == 1:
            at = struct.unpack("<d", content)[0]
        elif number == 5:
            summaries.append(content)
        elif number == 7 and (1, _START) in all_fields(content):
            tags = {*tags, *(point.name for point in part.points)}
            part.points.extend(Point(tag, step, at, None) for tag in sorted(tags))
    for summary in summaries:
        for number, value in fields(summary):
            if number == 1:
                _value(value, step, at, part)


def _value(value: bytes, step: int, at: float, part: Reading) -> None:
    of = dict(fields(value))
    tag = of.get(1, b"").decode(errors="replace")
    if 2 in of:
        part.points.append(Point(tag, step, at, struct.unpack("<f", of[2])[0]))
    elif 4 in of:
        part.images.append(_image(tag, step, dict(fields(of[4])).get(4, b"")))
    elif 8 in of:
        _tensor(tag, step, at, of[8], part)
    elif tag == _HPARAMS:
        part.parameters.update(_hyperparameters(of.get(9, b"")))


def _tensor(tag: str, step: int, at: float, tensor: bytes, part: Reading) -> None:
    dtype, content, values = 0, b"", list[bytes | int]()
    form = ""
    for number, data in all_fields(tensor):
        if number == 1 and isinstance(data, int):
            dtype = data
        elif number == 4 and isinstance(data, bytes):
            content, form = data, _PACKED.get(dtype, "")
        elif number in _VALUES and isinstance(data, bytes):
            content, form = data, _VALUES[number]
        elif number == 8:
            values.append(data)
    if form and len(content) == struct.calcsize(form):  # one number; more are a histogram
        part.points.append(Point(tag, step, at, float(struct.unpack(f"<{form}", content)[0])))
    elif dtype == _STRING and len(values) == 1 and tag.endswith(_TEXT):
        part.parameters.update(_configuration(values[0]))
    elif dtype == _STRING and len(values) > 2:  # width, height, and images
        several = (value for value in values[2:] if isinstance(value, bytes))
        part.images.extend(_image(tag, step, data) for data in several if _suffix(data))


def _image(tag: str, step: int, data: bytes) -> Image:
    return Image(tag, step, _suffix(data) or ".png", None if len(data) > LARGEST_IMAGE else data)


def _suffix(data: bytes) -> str:
    return next((text for mark, text in _SUFFIXES.items() if data.startswith(mark)), "")


def _configuration(text: bytes | int) -> Iterator[tuple[str, str]]:
    """The parameters in a text that is JSON, as Trainer writes its arguments."""
    config: Any = None
    if isinstance(text, bytes) and text.lstrip()[:1] == b"{":
        try:
            config = json.loads(text)
        except ValueError:
            return
    if isinstance(config, dict):
        yield from readings.short(readings.parameters(config))


def _hyperparameters(metadata: bytes) -> Iterator[tuple[str, str]]:
    """Those in the metadata of a session's start: plugin_data.content.session_start_info."""
    plugin = dict(fields(dict(fields(metadata)).get(1, b"")))
    session = dict(fields(plugin.get(2, b""))).get(3, b"")
    for number, entry in fields(session):
        if number == 1:
            of = dict(fields(entry))
            yield of.get(1, b"").decode(errors="replace"), _struct_value(of.get(2, b""))


def _struct_value(value: bytes) -> str:
    """A google.protobuf.Value: a number, a text or a truth value."""
    for number, content in all_fields(value):
        if number == 2 and isinstance(content, bytes):
            return f"{struct.unpack('<d', content)[0]:g}"
        if number == 3 and isinstance(content, bytes):
            return readings.parameter_text(content.decode(errors="replace"))
        if number == 4:
            return readings.parameter_text(bool(content))
    return ""


def _tag(head: bytes) -> str:
    """The tag of a record of which only the start was read."""
    at = head.find(b"\n", 10)
    while at >= 0:
        size = head[at + 1] if at + 1 < len(head) else 0
        text = head[at + 2 : at + 2 + size]
        if 0 < size < 128 and len(text) == size and text.isascii() and text.decode().isprintable():
            return text.decode()
        at = head.find(b"\n", at + 1)
    return "an image"
