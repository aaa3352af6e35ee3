"""How the code and the environment of jobs differ from those of the first, as lines."""

from __future__ import annotations

import difflib
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from allranks.api import routes
from allranks.errors import AllranksError
from allranks.http_client import Client
from allranks.masking import holds_secrets

if TYPE_CHECKING:
    from allranks.api.jobs import ComparisonAnswer

# Bytes of a file that are compared.
_LARGE = 256 << 10

_SECTIONS = ("code", "environment")


class Lines(NamedTuple):
    """``name``: the path of a file, or `environment`; ``what``: changed, new or gone. ``lines`` as
    diff prints them; ``more``: how many are left out."""

    name: str
    what: str
    lines: list[str]
    more: int = 0


class Different(NamedTuple):
    """Jobs that differ from the first in the same way; ``parts``: None if there are too many
    ways."""

    jobs: list[str]
    parts: list[Lines] | None


def line_differences(
    client: Client, comparison: ComparisonAnswer, most: int | None = None, lines: int = 400
) -> list[Different]:
    """What differs from the first job, in at most so many ways, and ``lines`` of each file."""
    first, *others = (job["name"] for job in comparison["jobs"])
    ways: dict[tuple[object, ...], list[int]] = {}
    for at in range(1, len(others) + 1):
        way = [d["values"] for d in comparison["differences"] if d["section"] in _SECTIONS]
        if any(values[at] != values[0] for values in way):
            ways.setdefault(tuple(values[at] for values in way), []).append(at)
    different = []
    for number, places in enumerate(ways.values()):
        names = [others[at - 1] for at in places]
        parts = None
        if most is None or number < most:
            at = places[0]
            every = [
                *_environment(comparison, at),
                *_code(client, comparison, first, names[0], at),
            ]
            parts = [_first(lines, part) for part in every]
        different.append(Different(names, parts))
    return different


def _first(most: int, part: Lines) -> Lines:
    return part._replace(lines=part.lines[:most], more=max(0, len(part.lines) - most))


def _environment(comparison: ComparisonAnswer, at: int) -> list[Lines]:
    lines = []
    for difference in comparison["differences"]:
        values = difference["values"]
        if difference["section"] != "environment" or values[0] == values[at]:
            continue
        kind, _, name = difference["name"].partition(" ")
        label = {"package": "", "variable": f"{name}="}.get(kind, f"{difference['name']}: ")
        for sign, value in (("-", values[0]), ("+", values[at])):
            if value is not None:
                lines.append(f"{sign}{label}{value}")
    return [Lines("environment", "changed", lines)] if lines else []


def _code(
    client: Client, comparison: ComparisonAnswer, first: str, name: str, at: int
) -> list[Lines]:
    changed = []
    for difference in comparison["differences"]:
        path, what = difference["name"].removeprefix("file "), difference["values"][at]
        if difference["section"] != "code" or what not in ("changed", "new", "gone"):
            continue
        if holds_secrets(path):
            changed.append(Lines(path, str(what), ["not shown: files of that name hold secrets"]))
        else:
            before = "" if what == "new" else _text(client, first, path)
            after = "" if what == "gone" else _text(client, name, path)
            changed.append(_lines(path, str(what), before, after))
    return changed


def _lines(path: str, what: str, before: str | None, after: str | None) -> Lines:
    if before is None or after is None:
        return Lines(path, what, ["no text, or too large to compare"])
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="")
    # Without the names.
    return Lines(path, what, list(islice(lines, 2, None)))


def _text(client: Client, job: str, path: str) -> str | None:
    """A file of a job's code; None if it is no text."""
    try:
        content = client.call(*routes.job_code_file.at(job, path)).body
    except AllranksError:
        return None
    if len(content) > _LARGE or b"\0" in content:
        return None
    return content.decode(errors="replace")
