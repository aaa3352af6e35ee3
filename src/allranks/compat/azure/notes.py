"""Say which arguments have no effect here, once each."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

_NOTED: set[str] = set()


def asks(value: Any) -> bool:
    """Whether the value of an argument asks for something. Numbers and objects do."""
    return bool(value) if isinstance(value, bool | str | list | tuple | dict) else value is not None


def without_effect(of: str, arguments: Mapping[str, Any], why: str = "") -> None:
    """Note those of ``arguments`` that ask for something."""
    names = [key for key, value in arguments.items() if asks(value)]
    note(f"no effect here: {', '.join(names)} of {of}{why and f' ({why})'}" if names else "")


def note(text: str) -> None:
    """Write a note to stderr, unless it is empty or was written."""
    if text and text not in _NOTED:
        _NOTED.add(text)
        print(f"note: {text}", file=sys.stderr, flush=True)
