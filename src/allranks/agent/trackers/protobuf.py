"""Read the fields of a protobuf message without its description.

https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5


def fields(data: bytes) -> list[tuple[int, bytes]]:
    """The number and content of each field that is not a varint. Raises ValueError."""
    return [pair for pair in all_fields(data) if not isinstance(pair[1], int)]  # type: ignore[misc]


def all_fields(data: bytes) -> list[tuple[int, bytes | int]]:
    """The number of each field, and its content: bytes, or the whole number of a varint. Raises
    ValueError."""
    # A list, and no call for the numbers of a byte: files have millions of fields.
    pairs: list[tuple[int, bytes | int]] = []
    at, size = 0, len(data)
    while at < size:
        tag = data[at]
        at += 1
        if tag >= 128:
            tag, at = _varint(data, at - 1)
        kind = tag & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            pairs.append((tag >> 3, value))
            continue
        if kind == _BYTES:
            if at < size and data[at] < 128:
                length = data[at]
                at += 1
            else:
                length, at = _varint(data, at)
        elif kind in (_EIGHT, _FOUR):
            length = 8 if kind == _EIGHT else 4
        else:
            raise ValueError(f"no such kind of field: {kind}")
        pairs.append((tag >> 3, data[at : at + length]))
        at += length
    if at > size:
        raise ValueError("the message ends within a field")
    return pairs


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
