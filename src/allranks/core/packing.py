"""Plans and other values as plain JSON data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def pack(value: Any) -> Any:
    """Plan types, enums and containers as plain JSON data."""
    if isinstance(value, str):
        return str(value)
    if value is None or isinstance(value, int | float):
        return value  # before the checks for abstract classes, which are slow
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = zip(value._fields, value, strict=True)
        return {name: pack(member) for name, member in fields}
    if isinstance(value, dict | Mapping):
        return {str(key): pack(member) for key, member in value.items()}
    if isinstance(value, Sequence):
        return [pack(member) for member in value]
    return value
