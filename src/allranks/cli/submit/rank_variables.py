"""Every rank's variables in few lines: those all ranks share, then what differs. Pure.

A value that differs is written as a template (`rank_{rank}`, `<address of node {node}>`) over the
columns of one table with a row a rank: any rank's exact value is the template with its row's cells.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# A rank that does not have the variable at all.
ABSENT = "-"


class Summary(NamedTuple):
    """``shared`` holds what is the same in every rank; ``templates`` the rest by name, as the text
    before, the column's name and the text after; ``rows`` has each rank's cells, in order."""

    shared: dict[str, str]
    templates: dict[str, tuple[str, str, str]]
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def summarize(ranks: Sequence[Mapping[str, Any]]) -> Summary:
    """``ranks`` are those of a dry run: rank, node, local_rank, role, environment."""
    columns = {
        name: tuple(str(rank[name]) for rank in ranks)
        for name in ("rank", "node", "local_rank", "role")
    }
    shared: dict[str, str] = {}
    templates: dict[str, tuple[str, str, str]] = {}
    for name in sorted({name for rank in ranks for name in rank["environment"]}):
        values = tuple(rank["environment"].get(name) for rank in ranks)
        if values[0] is not None and len(set(values)) == 1:
            shared[name] = values[0]
            continue
        before, cells, after = _split(values)
        column = _column(name, before, cells, columns)
        columns.setdefault(column, cells)
        templates[name] = before, column, after
    return Summary(shared, templates, tuple(columns), list(zip(*columns.values(), strict=True)))


def _split(values: Sequence[str | None]) -> tuple[str, tuple[str, ...], str]:
    """What all begin with, what differs, what all end with; no number is cut in two."""
    if None in values:
        return "", tuple(ABSENT if value is None else value for value in values), ""
    texts = [value for value in values if value is not None]
    before = _common_start(texts).rstrip("0123456789")
    rests = [text[len(before) :] for text in texts]
    after = _common_start([rest[::-1] for rest in rests])[::-1].lstrip("0123456789")
    return before, tuple(rest[: len(rest) - len(after)] for rest in rests), after


def _common_start(texts: Sequence[str]) -> str:
    return os.path.commonprefix(texts)  # noqa: RUF071  texts, not paths


def _column(
    name: str, before: str, cells: tuple[str, ...], columns: Mapping[str, tuple[str, ...]]
) -> str:
    """The column with these cells, or a new one of the variable's name. With one process a node
    `rank` and `node` have the same cells: the name and the text before it say which is meant."""
    same = [known for known, there in columns.items() if there == cells]
    context = (name + before).lower()
    if "node" in same and ("node" in context or "host" in context):
        return "node"
    return same[0] if same else name


def lines(ranks: Sequence[Mapping[str, Any]], table: Any) -> Iterable[str]:
    """The text of it; ``table`` makes lines of a head and rows."""
    found = summarize(ranks)
    yield "every rank"
    yield f"  argv     {ranks[0]['argv']}"
    yield from (f"  {name}={value}" for name, value in found.shared.items())
    if not found.templates:
        return
    yield "\neach rank; {…} is its column in the table below"
    for name, (before, column, after) in found.templates.items():
        yield f"  {name}={before}{{{column}}}{after}"
    yield ""
    yield from (f"  {line}" for line in table(found.columns, found.rows))
