"""Summarize the environment variables of all ranks: the shared ones, then what differs. Pure.

A value that differs becomes a template (`rank_{rank}`, `<address of node {node}>`) over the columns
of one table with a row for each rank: the template with a row's cells is that rank's exact value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

# The cell of a rank that does not have the variable.
ABSENT = "-"


class Summary(NamedTuple):
    """``shared`` has the variables that are equal in every rank; ``templates`` the others by name,
    as (text before, column, text after); ``rows`` the cells of each rank, in order."""

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
    """The common start, what differs, the common end. Does not split a number."""
    if None in values:
        return "", tuple(ABSENT if value is None else value for value in values), ""
    texts = [value for value in values if value is not None]
    before = _common_start(texts).rstrip("0123456789")
    rests = [text[len(before) :] for text in texts]
    after = _common_start([rest[::-1] for rest in rests])[::-1].lstrip("0123456789")
    return before, tuple(rest[: len(rest) - len(after)] for rest in rests), after


def _common_start(texts: Sequence[str]) -> str:
    least = min(texts)
    greatest = max(texts)
    pairs = enumerate(zip(least, greatest, strict=False))
    return least[: next((at for at, (a, b) in pairs if a != b), len(least))]


def _column(
    name: str, before: str, cells: tuple[str, ...], columns: Mapping[str, tuple[str, ...]]
) -> str:
    """The column with these cells, or a new one with the variable's name.

    With one process a node `rank` and `node` have equal cells: the variable's name and the text
    before the cell decide between them.
    """
    equal = [column for column, others in columns.items() if others == cells]
    context = (name + before).lower()
    if "node" in equal and ("node" in context or "host" in context):
        return "node"
    return equal[0] if equal else name


def lines(ranks: Sequence[Mapping[str, Any]], table: Any) -> Iterable[str]:
    """The summary as text; ``table`` formats a head and rows as lines."""
    summary = summarize(ranks)
    yield "every rank"
    yield f"  argv     {ranks[0]['argv']}"
    yield from (f"  {name}={value}" for name, value in summary.shared.items())
    if not summary.templates:
        return
    yield "\neach rank; {…} is a column of the table below"
    for name, (before, column, after) in summary.templates.items():
        yield f"  {name}={before}{{{column}}}{after}"
    yield ""
    yield from (f"  {line}" for line in table(summary.columns, summary.rows))
