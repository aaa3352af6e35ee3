"""Read the fields of a protobuf message without its description.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The number and content of each field that is not a varint. Raises ValueError."""
    for number, value in all_fields(data):
        if not isinstance(value, int):
            yield number, value


def all_fields(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """The number of each field, and its content: bytes, or the whole number of a varint. Raises
    ValueError."""
    at, size = 0, len(data)
    while at < size:
        tag = data[at]
        at += 1
        if tag >= 128:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            length, at = _varint(data, at)
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"no such kind of field: {kind}")
        if at + length > size:
            raise ValueError("the message ends within a field")
        yield tag >> 3, data[at : at + length]
        at += length


def signed(value: int) -> int:
    """A varint as the signed number of 64 bits that it stands for."""
    return value - (1 << 64) if value >= 1 << 63 else value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise ValueError("a number without an end")
