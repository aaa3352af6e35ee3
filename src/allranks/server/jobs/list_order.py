"""Sort a list of jobs by columns that the database cannot sort by.

The database leaves out the jobs that cannot have such a value; the others' rows are read.
"""

from __future__ import annotations

import math
from typing import Any

from allranks.core.job.list_filters import ALL_SORTS, COLUMNS, SORTS, Query, Sort
from allranks.errors import UsageError
from allranks.server.jobs import view
from allranks.store.jobs.annotations import Annotation, Annotations
from allranks.store.jobs.job_rows import Damaged, JobRow
from allranks.store.jobs.records import Records

_KEYS = {"by": "created_by", "ranks": "processes"}
# Names that an error lists, and the newest jobs that it takes them from.
_MOST_NAMES, _SOME = 30, 200
# The most jobs whose rows are read for a list: about three seconds.
_MOST = 10_000


def find_sorted(records: Records, annotations: Annotations, query: Query) -> list[JobRow | Damaged]:
    """The matching jobs in the order of any column. Jobs without a value come last. Raises
    UsageError if no matching job has one, or too many may."""
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
    key, down = query.sort.key, query.sort.descending
    by_creation = query._replace(sort=Sort("created", down))
    name = "" if key in COLUMNS else key.removeprefix("inputs.").removeprefix("tags.")
    candidates = records.ids(by_creation._replace(mentions=name, limit=_MOST + 1))
    if len(candidates) > _MOST:
        message = f"more than {_MOST:,} jobs would have to be read to sort them by {key[:80]!r}"
        hint = "narrow the list: --since 7d, --experiment, --status, --name or --tag"
        raise UsageError(message, where="--sort", hint=hint)
    valued: list[tuple[int, float, str, int]] = []
    for rows in records.pages(candidates):
        notes = annotations.several(row.id for row in rows)
        for row in rows:
            value = None if isinstance(row, Damaged) else _value(row, notes.get(row.id), key)
            if (order := _order(value)) is not None:
                valued.append((*order, row.id))
    if not valued and key not in COLUMNS:
        newest = records.find(query._replace(sort=Sort("created", True), limit=_SOME))
        if newest:
            raise _unknown(key, _names(records, annotations, newest))
    ids = [order[-1] for order in sorted(valued, reverse=down)]
    if len(ids) < query.limit:
        has_value = set(ids)
        ids += [job_id for job_id in records.ids(by_creation) if job_id not in has_value]
    return [row for page in records.pages(ids[: query.limit]) for row in page]


def _value(row: JobRow, note: Annotation | None, key: str) -> Any:
    """The value of a job in a column; a parameter comes before an input of the same name."""
    if key in COLUMNS:
        return view.brief(row).get(_KEYS.get(key, key))
    return _named(row, note or Annotation(row.name)).get(key)


def _named(row: JobRow, note: Annotation) -> dict[str, Any]:
    inputs = view.inputs(row)
    return {
        **inputs,
        **view.parameters(row, note),
        **{f"inputs.{name}": value for name, value in inputs.items()},
        **{f"tags.{name}": value for name, value in note.tags.items()},
    }


def _names(records: Records, annotations: Annotations, rows: list[JobRow | Damaged]) -> set[str]:
    """What some jobs can be sorted by."""
    notes = annotations.several(row.id for row in rows)
    values = records.last_values(row.id for row in rows).values()
    names = {name for value in values for name in value}
    for row in rows:
        if isinstance(row, JobRow):
            names.update(_named(row, notes.get(row.id) or Annotation(row.name)))
    return names


def _order(value: Any) -> tuple[int, float, str] | None:
    """Numbers, also those written as text, come before other values; None for no value."""
    if value is None:
        return None
    try:
        number = float(value)
    except (TypeError, ValueError):
        return 1, 0.0, str(value)
    except OverflowError:  # a whole number that is larger than any other
        number = math.inf if value > 0 else -math.inf
    return None if math.isnan(number) else (0, number, "")


def _unknown(key: str, names: set[str]) -> UsageError:
    from allranks.spec.fields.problems import nearest  # lazy: for a slip alone

    names = {*names, *ALL_SORTS}
    some = ", ".join(sorted(names, key=lambda name: (name not in ALL_SORTS, name))[:_MOST_NAMES])
    near = nearest(key, names)
    message = f"no job in this list has a metric, parameter or input {key[:80]!r}"
    return UsageError(message, where="--sort", hint=f"{near} Or one of {some}" if near else some)
