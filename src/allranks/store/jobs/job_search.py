"""Find jobs: filtering and sorting in the database."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Text, and_, cast, collate, exists, func, or_, select
from sqlalchemy.engine import Connection

from allranks import clock
from allranks.plan.job.list_filters import Query, Sort, like
from allranks.store.database import job_annotations as _annotations
from allranks.store.database import jobs as _jobs
from allranks.store.database import members
from allranks.store.database import points as _points
from allranks.store.database import series as _series
from allranks.store.metric_points import METRIC
from allranks.store.metric_points import number as as_number

_OPERATORS: Mapping[str, Callable[[Any, float], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
# Ids in one query: databases have a limit.
_BATCH = 500


def search(connection: Connection, filters: Query) -> list[int]:
    """The ids of the matching jobs, in the requested order."""
    query = select(_jobs.c.id).limit(filters.limit)
    query = query.join(_annotations, _annotations.c.job_id == _jobs.c.id)
    query = query.where(*_filters(connection, filters)).order_by(*_order(filters.sort))
    return list(connection.execute(query).scalars())


def names_with_prefix(connection: Connection, prefix: str, most: int) -> list[str]:
    """See ``Records.names_with_prefix``."""
    name: ColumnElement[str] = _jobs.c.name
    if connection.dialect.name == "postgresql":
        name = collate(name, "C")  # its usual order is not that of the characters
    query = select(_jobs.c.name).order_by(_jobs.c.id.desc()).limit(most)
    # A range, of which an index knows the names.
    query = query.where(name >= prefix, name < prefix + chr(sys.maxunicode))
    for each in (query.where(_jobs.c.parent.is_(None)), query):
        if names := list(connection.execute(each).scalars()):
            return names
    return []


def last_values(
    connection: Connection, job_ids: Iterable[int]
) -> dict[int, dict[str, float | str]]:
    """The last value of each metric by job id and metric name, as JSON values; of the newest
    attempt and the lowest rank."""
    ids, values = list(job_ids), dict[int, dict[str, float | str]]()
    for start in range(0, len(ids), _BATCH):
        some = _series.c.job_id.in_(ids[start : start + _BATCH])
        one = (_series.c.job_id, _series.c.name)
        number = func.row_number().over(partition_by=one, order_by=_series_order())
        every = select(*one, _points.c.value, number.label("number"))
        every = every.join_from(_series, _points, _last_point())
        last = every.where(_series.c.kind == METRIC, some).subquery()
        query = select(last.c.job_id, last.c.name, last.c.value).where(last.c.number == 1)
        for job_id, name, value in connection.execute(query.order_by(last.c.name)):
            values.setdefault(job_id, {})[name] = as_number(value)
    return values


def _filters(connection: Connection, filters: Query) -> Iterator[ColumnElement[bool]]:
    if filters.status is not None:
        yield func.lower(_jobs.c.status) == filters.status.lower()
    if filters.parent is not None:
        yield _jobs.c.parent == filters.parent
    elif not filters.children:
        yield _jobs.c.parent.is_(None)
    if filters.uses is not None:
        yield _uses(filters.uses)
    if filters.experiment is not None:
        yield _jobs.c.experiment == filters.experiment
    if filters.name is not None:
        pattern = like(filters.name)
        names = (_jobs.c.name, _annotations.c.display_name)
        yield or_(*(each.ilike(pattern, escape="\\") for each in names))
    for key, value in filters.tags:
        tag = members(connection, _annotations.c.tags)
        same = [tag.c.key == key] + ([] if value is None else [tag.c.value == value])
        yield exists(select(1).select_from(tag).where(*same))
    for each in filters.metrics:
        yield _OPERATORS[each.operator](_metric(each.metric), each.value)
    if filters.since is not None:
        yield _jobs.c.created_at >= filters.since
    if filters.until is not None:
        yield _jobs.c.created_at < filters.until
    if filters.archived is not None:
        archived = _annotations.c.archived_at
        yield archived.is_not(None) if filters.archived else archived.is_(None)


def _uses(asset: str) -> ColumnElement[bool]:
    """Whether the job file, in which versions are pinned, names an asset."""
    name, colon, version = asset.removeprefix("azureml:").partition(":")
    text = f'"azureml:{name}:{version}"' if colon else f'"azureml:{name}:'
    return cast(_jobs.c.spec, Text).contains(text, autoescape=True)


def _series_order() -> tuple[ColumnElement[Any], ...]:
    """Order of a metric's series: the newest attempt, and then the lowest rank, first."""
    without_rank = _series.c.rank.is_(None)
    return _series.c.attempt.desc(), without_rank, _series.c.rank, _series.c.node, _series.c.id


def _last_point() -> ColumnElement[bool]:
    return and_(_points.c.series_id == _series.c.id, _points.c.number == _series.c.length - 1)


def _metric(name: str) -> ColumnElement[Any]:
    """The last value of a job's metric. A correlated subquery, because a join of all jobs with all
    values takes a hundred times as long."""
    query = select(_points.c.value).join_from(_series, _points, _last_point())
    mine = (_series.c.job_id == _jobs.c.id, _series.c.kind == METRIC, _series.c.name == name)
    query = query.where(*mine).order_by(*_series_order()).limit(1)
    return query.correlate(_jobs).scalar_subquery()


def _order(sort: Sort) -> tuple[ColumnElement[Any], ...]:
    """Jobs without the value come last; equal ones are sorted newest first."""
    if sort.key == "created" and not sort.metric:
        return (_jobs.c.id.desc() if sort.descending else _jobs.c.id.asc(),)
    value = _metric(sort.key) if sort.metric else _column(sort.key)
    ordered = value.desc() if sort.descending else value.asc()
    return ordered.nulls_last(), _jobs.c.id.desc()


def _column(key: str) -> ColumnElement[Any]:
    if key == "duration":
        return func.coalesce(_jobs.c.ended_at, clock.now()) - _jobs.c.started_at
    columns = {
        "started": _jobs.c.started_at,
        "ended": _jobs.c.ended_at,
        "name": _jobs.c.name,
        "status": _jobs.c.status,
        "experiment": _jobs.c.experiment,
    }
    return columns[key]
