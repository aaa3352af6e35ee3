"""Plans and other values as plain JSON data, and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


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


def unpack(kind: type[T], data: Any) -> T:
    """The value of a NamedTuple ``kind`` that ``pack`` made into ``data``, in this version or in a
    neighbouring one: keys that are not known are left out, and missing ones get their defaults.
    Raises one of TypeError, ValueError, KeyError and AttributeError for what is no such value."""
    read = _reader(kind)  # type: ignore[arg-type]
    return data if read is None else read(data)  # type: ignore[no-any-return]


def prepare(*kinds: Any) -> None:
    """Make what ``unpack`` needs for these types, which takes a millisecond for each. Processes
    that are forked from this one have it."""
    for kind in kinds:
        _reader(kind)


@cache
def _reader(kind: Any) -> Callable[[Any], Any] | None:
    """What reads a type from JSON; None: it is JSON as it is."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType) and NoneType in args:
        (read, *others) = [_reader(arg) for arg in args if arg is not NoneType]
        return None if read is None or others else lambda data: None if data is None else read(data)
    if origin in (tuple, frozenset):
        item = _reader(args[0])
        if origin is tuple and args[1:] != (...,):
            return tuple
        return lambda data: origin(_items(data) if item is None else map(item, _items(data)))
    if origin in (dict, Mapping):
        return _mapping_reader(*args)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind
    return _fields_reader(kind) if hasattr(kind, "_fields") else None


def _items(data: Any) -> Sequence[Any]:
    if not isinstance(data, list | tuple):
        raise TypeError(f"a list is expected, not a {type(data).__name__}")
    return data


def _mapping_reader(key: Any, value: Any) -> Callable[[Any], Any] | None:
    read = _reader(value)
    if key is int:
        return lambda data: {int(k): v if read is None else read(v) for k, v in data.items()}
    return None if read is None else lambda data: {k: read(v) for k, v in data.items()}


def _fields_reader(kind: Any) -> Callable[[Any], Any]:
    hints = get_type_hints(kind)
    fields = [(name, _reader(hints[name])) for name in kind._fields]

    def read(data: Any) -> Any:
        if not isinstance(data, Mapping):
            raise TypeError(f"{kind.__name__} is not read from a {type(data).__name__}")
        return kind(
            **{
                name: data[name] if of is None else of(data[name])
                for name, of in fields
                if name in data
            }
        )

    return read
