"""Sort a list of jobs by columns that the database cannot sort by."""

from __future__ import annotations

import math
from typing import Any

from allranks.core.job.list_filters import ALL_SORTS, COLUMNS, SORTS, Query
from allranks.errors import UsageError
from allranks.server.jobs import view
from allranks.store.jobs.annotations import Annotation, Annotations
from allranks.store.jobs.job_rows import Damaged, JobRow
from allranks.store.jobs.records import Records

_KEYS = {"by": "created_by", "ranks": "processes", "archived": "archived_at"}
# Names that an error lists.
_MOST_NAMES = 30


def find_sorted(records: Records, annotations: Annotations, query: Query) -> list[JobRow | Damaged]:
    """The matching jobs in the order of any column. Jobs without a value come last. Raises
    UsageError if no matching job has one."""
    key = query.sort.key
    if query.sort.metric:
        rows = records.find(query)
        if not rows or key in records.last_values([rows[0].id]).get(rows[0].id, {}):
            return rows
    elif key in SORTS:
        return records.find(query)
    return _sorted_by_column(records, annotations, query)


def _sorted_by_column(
    records: Records, annotations: Annotations, query: Query
) -> list[JobRow | Damaged]:
    valued: list[tuple[int, float, str, int]] = []
    others: list[int] = []
    names: set[str] = set()
    for rows in records.all_pages(query):
        notes = annotations.several(row.id for row in rows)
        for row in rows:
            columns = _columns(row, notes.get(row.id))
            names.update(columns)
            if (order := _order(columns.get(query.sort.key))) is None:
                others.append(row.id)
            else:
                valued.append((*order, row.id))
    if others and not valued and query.sort.key not in COLUMNS:
        names.update(name for values in records.last_values(others).values() for name in values)
        raise _unknown(query.sort.key, names)
    down = query.sort.descending
    ids = [order[-1] for order in sorted(valued, reverse=down)] + sorted(others, reverse=down)
    return [row for page in records.pages(ids[: query.limit]) for row in page]


def _columns(row: JobRow | Damaged, note: Annotation | None) -> dict[str, Any]:
    """The values of a job by column; a parameter comes before an input of the same name."""
    if isinstance(row, Damaged):
        return {}
    job = view.listed(row, note, {})
    return {
        **job["inputs"],
        **job["parameters"],
        **{f"inputs.{name}": value for name, value in job["inputs"].items()},
        **{f"tags.{name}": value for name, value in job["tags"].items()},
        **{column: job.get(_KEYS.get(column, column)) for column in COLUMNS},
    }


def _order(value: Any) -> tuple[int, float, str] | None:
    """Numbers, also those written as text, come before other values; None for no value."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 1, 0.0, str(value)
    return None if math.isnan(number) else (0, number, "")


def _unknown(key: str, names: set[str]) -> UsageError:
    from allranks.spec.fields.problems import nearest  # lazy: for a slip alone

    names = {*names, *ALL_SORTS}
    some = ", ".join(sorted(names, key=lambda name: (name not in ALL_SORTS, name))[:_MOST_NAMES])
    near = nearest(key, names)
    message = f"no job in this list has a metric, parameter or input {key[:80]!r}"
    return UsageError(message, where="--sort", hint=f"{near} Or one of {some}" if near else some)
