"""What was found about a file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

YES, PARTLY, NO, NOT_KNOWN = "yes", "partly", "no", "not known"


class Finding(NamedTuple):
    """``runs`` is `yes`, `partly`, `no`, or `not known` if nothing speaks against it, but not all
    was tried. ``notes`` say what stands for what; ``problems`` are
    what keeps it from running, each with what to do. ``computes`` and ``data`` are the names and
    addresses that it uses."""

    file: str
    kind: str
    runs: str
    notes: tuple[str, ...] = ()
    problems: tuple[tuple[str, str], ...] = ()
    computes: tuple[str, ...] = ()
    data: tuple[str, ...] = ()


# The most bytes of a file that is read: notebooks have pictures.
_LARGEST = 256 << 20

_PREFIXES = (
    re.compile(r"(?:wasbs?|abfss?)://[^/]+/"),
    re.compile(r"https?://[^/]+\.(?:blob|dfs)\.core\.windows\.net/[^/]+/"),
    re.compile(r"(?:s3|gs)://[^/]+/"),
    re.compile(r"https?://[^/]+/"),
)


def read_text(file: Path) -> str:
    """The text of a file. Raises OSError for one that is no regular file, or too large."""
    if not file.is_file() or file.stat().st_size > _LARGEST:
        raise OSError(f"{file} is not a file of text")
    return file.read_text(encoding="utf-8", errors="replace")


def mentions(file: Path, *words: str) -> bool:
    """Whether a file that cannot be parsed has one of the words, and so is one of Azure ML's."""
    try:
        content = read_text(file)
    except OSError:
        return False
    return any(word in content for word in words)


def prefix_of(address: str) -> str:
    """The container, bucket or site of an address; empty for one that is no URI."""
    for pattern in _PREFIXES:
        if match := pattern.match(address):
            return match[0]
    return ""


def uses(data: Any) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The computes and the addresses in a job's data, also in those of its steps."""
    computes: dict[str, None] = {}
    addresses: dict[str, None] = {}
    _look(data, computes, addresses)
    return tuple(computes), tuple(addresses)


def _look(data: Any, computes: dict[str, None], addresses: dict[str, None]) -> None:
    if isinstance(data, Mapping):
        for key, value in data.items():
            if key in ("compute", "default_compute") and isinstance(value, str):
                name = value.removeprefix("azureml:")
                if "${{" not in name:
                    computes[name] = None
            elif key == "path" and isinstance(value, str) and prefix_of(value):
                addresses[value] = None
            else:
                _look(value, computes, addresses)
    elif isinstance(data, Sequence) and not isinstance(data, str):
        for item in data:
            _look(item, computes, addresses)
