"""Find jobs: filtering and sorting in the database."""

from __future__ import annotations

import json
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    UnaryExpression,
    and_,
    cast,
    collate,
    func,
    or_,
    select,
)
from sqlalchemy.engine import Connection

from allranks import clock
from allranks.core.job.list_filters import CREATED_BY, OWNER, Query, Sort, like
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.database import has_member
from allranks.store.metric_points import LEADS, METRIC, extremes
from allranks.store.metric_points import number as as_number
from allranks.store.tables import job_annotations as _annotations
from allranks.store.tables import jobs as _jobs
from allranks.store.tables import series as _series

_OPERATORS: Mapping[str, Callable[[Any, float], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "!=": operator.ne,
    "==": operator.eq,
    "=": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}
# Ids in one query: databases have a limit. And where each query looks through all series.
_BATCH, _MANY = 500, 10_000
_trials = _jobs.alias("trials")
_IS_BEST = and_(_jobs.c.type == "sweep", _trials.c.name == _jobs.c.notes["best"].as_string())


def search(connection: Connection, filters: Query) -> list[int]:
    """The ids of the matching jobs, in the requested order."""
    query = select(_jobs.c.id).join(_annotations, _annotations.c.job_id == _jobs.c.id)
    query = query.where(*_filters(connection, filters))
    if filters.sort.best:
        return _by_best(connection, query, filters)
    if filters.sort.metric and not _is_narrow(filters):
        return _by_value(connection, query, filters)
    query = query.order_by(*_order(filters.sort)).limit(filters.limit)
    return list(connection.execute(query).scalars())


def _is_narrow(filters: Query) -> bool:
    """Whether few jobs may match: walking the index by value would skip nearly all its entries."""
    narrowing = (filters.statuses, filters.experiment, filters.name, filters.tags, filters.since)
    times = (filters.until, filters.ended_since)
    return any((*narrowing, *times, filters.parent, filters.uses, filters.by))


def _by_value(connection: Connection, query: Select[int], filters: Query) -> list[int]:
    """Sort by a metric as `_order` does, with an index: first the jobs that have a value."""
    column = _series.c.value
    has = and_(_has_metric(_jobs.c.id, filters.sort.key), column.is_not(None))
    valued = query.add_columns(column).join(_series, has)
    order = (_directed(each, filters.sort) for each in (column, _series.c.job_id))
    valued = valued.order_by(*order).limit(filters.limit)
    of_trials = _value(filters.sort.key)
    sweeps = query.add_columns(of_trials).where(_jobs.c.type == "sweep", of_trials.is_not(None))
    ids: list[int] = []
    for which in (~_ended_badly(), _ended_badly()):
        rows = [*connection.execute(valued.where(which)), *connection.execute(sweeps.where(which))]
        rows.sort(key=lambda row: (row[1], row[0]), reverse=filters.sort.descending)
        ids += (job_id for job_id, _ in rows)
        if len(ids) >= filters.limit:
            return ids[: filters.limit]
    if (missing := filters.limit - len(ids)) > 0:
        rest = query.where(_value(filters.sort.key).is_(None))
        rest = rest.order_by(_directed(_jobs.c.id, filters.sort)).limit(missing)
        ids += connection.execute(rest).scalars()
    return ids


def _by_best(connection: Connection, query: Select[int], filters: Query) -> list[int]:
    """Sort by the history of a metric as `_order` does."""
    badly = _pairs(connection, query.add_columns(_ended_badly()))
    values = best_values(connection, badly, filters.sort)
    sign = -1 if filters.sort.descending else 1

    def order(job_id: int) -> tuple[bool, bool, float, int]:
        value = values.get(job_id)
        is_bad = value is not None and badly[job_id]
        return value is None, is_bad, sign * (value or 0.0), sign * job_id

    return sorted(badly, key=order)[: filters.limit]


def best_values(connection: Connection, job_ids: Iterable[int], sort: Sort) -> dict[int, float]:
    """The least finite value in the history of a metric by job id, if descending the greatest. Of
    all attempts and the lowest rank, and of a sweep that of its best trial."""
    ids = sorted(job_ids)
    job_of, trial_of = dict[int, int](), dict[int, int]()
    for start in range(0, len(ids), _MANY):
        some = ids[start : start + _MANY]
        trials = select(_jobs.c.id, _trials.c.id).join(_trials, _IS_BEST)
        trials_of_some = _pairs(connection, trials.where(_jobs.c.id.in_(some)))
        trial_of |= trials_of_some
        all_ids = {*some, *trials_of_some.values()}
        of_jobs = (_series.c.job_id.in_(all_ids), _series.c.name == sort.key)
        # Two queries: the databases would look through all series for each leader.
        leaders = select(_series.c.job_id, _series.c.rank).where(*of_jobs, LEADS)
        rank_of = _pairs(connection, leaders)
        history = select(_series.c.id, _series.c.job_id, _series.c.rank)
        history = history.where(_series.c.kind == METRIC, *of_jobs)
        for series, job, rank in connection.execute(history):
            if job in rank_of and rank == rank_of[job]:
                job_of[series] = job
    values: dict[int, float] = {}
    better = max if sort.descending else min
    for series, bounds in extremes(connection, [*job_of]).items():
        job, value = job_of[series], better(bounds)
        values[job] = better(value, values.get(job, value))
    return {job: values[source] for job in ids if (source := trial_of.get(job, job)) in values}


def _pairs(connection: Connection, query: Select[Any]) -> dict[Any, Any]:
    return dict(map(tuple, connection.execute(query)))


def names_with_prefix(connection: Connection, prefix: str, most: int) -> list[str]:
    """See ``Records.names_with_prefix``."""
    name: ColumnElement[str] = _jobs.c.name
    if connection.dialect.name == "postgresql":
        name = collate(name, "C")  # its usual order is not that of the characters
    query = select(_jobs.c.name).order_by(_jobs.c.id.desc()).limit(most)
    # A range, of which an index knows the names.
    query = query.where(name >= prefix, name < prefix + chr(sys.maxunicode))
    for candidates in (query.where(_jobs.c.parent.is_(None)), query):
        if names := list(connection.execute(candidates).scalars()):
            return names
    return []


def last_values(
    connection: Connection, job_ids: Iterable[int]
) -> dict[int, dict[str, float | str]]:
    """The last value of each metric by job id and metric name, as JSON values; of the newest
    attempt and the lowest rank, and of a sweep that of its best trial."""
    ids = list(job_ids)
    values = dict[int, dict[str, float | str]]()
    columns = (_series.c.name, _series.c.value)
    own = select(_series.c.job_id, *columns)
    best = select(_jobs.c.id, *columns).join(_trials, _IS_BEST)
    best = best.join(_series, _series.c.job_id == _trials.c.id)
    for start in range(0, len(ids), _BATCH):
        some = ids[start : start + _BATCH]
        queries = (own.where(_series.c.job_id.in_(some)), best.where(_jobs.c.id.in_(some)))
        for query in queries:
            for row in connection.execute(query.where(LEADS).order_by(_series.c.name)):
                values.setdefault(row[0], {})[row.name] = as_number(row.value)
    return values


def _filters(connection: Connection, filters: Query) -> Iterator[ColumnElement[bool]]:
    if filters.statuses:
        yield _jobs.c.status.in_(filters.statuses)
    if filters.parent is not None:
        yield _jobs.c.parent == filters.parent
    elif not filters.children:
        yield _jobs.c.parent.is_(None)
    if filters.uses is not None:
        yield _uses(filters.uses)
    if filters.by is not None:
        if filters.statuses and not TERMINAL.intersection(filters.statuses):
            yield _jobs.c.live == 1  # by its index, since the submitter is in the large rows
        submitter = _jobs.c.spec[("properties", CREATED_BY)].as_string()
        yield func.coalesce(submitter, OWNER) == filters.by
    if filters.mentions:
        yield _mentions(filters.mentions)
    if filters.experiment is not None:
        yield _jobs.c.experiment == filters.experiment
    if filters.name is not None:
        pattern = like(filters.name)
        for_names = partial(_contains, connection, pattern)
        yield or_(for_names(_jobs.c.name), for_names(_annotations.c.display_name))
    for key, value in filters.tags:
        yield has_member(connection, _annotations.c.tags, key, value)
    for condition in filters.metrics:
        fits = _OPERATORS[condition.operator](_series.c.value, condition.value)
        with_it = select(_series.c.job_id).where(_series.c.name == condition.metric, LEADS, fits)
        yield _jobs.c.id.in_(with_it)
    if filters.since is not None:
        yield _jobs.c.created_at >= filters.since
    if filters.until is not None:
        yield _jobs.c.created_at < filters.until
    if filters.ended_since is not None:
        yield _jobs.c.ended_at >= filters.ended_since
    if filters.archived is not None:
        archived = _annotations.c.archived_at
        yield archived.is_not(None) if filters.archived else archived.is_(None)


def _contains(
    connection: Connection, pattern: str, column: ColumnElement[str]
) -> ColumnElement[bool]:
    """Whether a text is like a pattern, in any case. Not `ilike`, which takes up to twice as long
    on both: SQLite's LIKE ignores case by itself."""
    if connection.dialect.name == "sqlite":
        return column.like(pattern, escape="\\")
    if pattern.isascii():  # the rules of a language take longer
        return func.lower(collate(column, "C")).like(pattern.lower(), escape="\\")
    return func.lower(column).like(func.lower(pattern), escape="\\")


def _uses(asset: str) -> ColumnElement[bool]:
    """Whether the job file, in which versions are pinned, names an asset."""
    name, colon, version = asset.removeprefix("azureml:").partition(":")
    text = f'"azureml:{name}:{version}"' if colon else f'"azureml:{name}:'
    return cast(_jobs.c.spec, Text).contains(text, autoescape=True)


def _mentions(name: str) -> ColumnElement[bool]:
    """Whether a name is anywhere in what a job has of names, as its flags write it, too."""
    text = json.dumps(name)[1:-1].replace("\\", "\\\\").replace("%", "\\%")
    pattern = f"%{text}%"  # `_` stands for `-`, too
    noted = (_jobs.c.notes, _annotations.c.parameters, _annotations.c.tags)
    columns = (_jobs.c.spec, _jobs.c.plan, *noted)
    return or_(*(cast(column, Text).like(pattern, escape="\\") for column in columns))


def _has_metric(job_id: ColumnElement[Any], metric: str) -> ColumnElement[bool]:
    """Whether a series has the value of a job's metric."""
    return and_(_series.c.job_id == job_id, _series.c.name == metric, LEADS)


def _ended_badly() -> ColumnElement[bool]:
    return _jobs.c.status.in_((JobStatus.FAILED, JobStatus.CANCELED))


def _value(metric: str) -> ColumnElement[Any]:
    """The value of a job's metric, of a sweep that of its best trial. Not a join, of which SQLite
    looks through all values for each job."""
    best = select(_trials.c.id).where(_IS_BEST).correlate(_jobs).scalar_subquery()
    job_id = func.coalesce(best, _jobs.c.id)
    query = select(_series.c.value).where(_has_metric(job_id, metric))
    return query.correlate(_jobs).scalar_subquery()


def _order(sort: Sort) -> tuple[ColumnElement[Any], ...]:
    """Jobs without the value come last; equal ones are in the order of their creation. Of those
    with a metric the ones that failed or were canceled follow the others."""
    by_id = _directed(_jobs.c.id, sort)
    if sort.key == "created" and not sort.metric:
        return (by_id,)
    value = _value(sort.key) if sort.metric else _column(sort.key)
    first = (value.is_(None), _ended_badly()) if sort.metric else ()
    return *first, _directed(value, sort).nulls_last(), by_id


def _directed(value: ColumnElement[Any], sort: Sort) -> UnaryExpression[Any]:
    return value.desc() if sort.descending else value.asc()


def _column(key: str) -> ColumnElement[Any]:
    if key == "duration":
        return func.coalesce(_jobs.c.ended_at, clock.now()) - _jobs.c.started_at
    columns = {
        "started": _jobs.c.started_at,
        "ended": _jobs.c.ended_at,
        "name": _jobs.c.name,
        "status": _jobs.c.status,
        "experiment": _jobs.c.experiment,
        "display_name": _annotations.c.display_name,
        "exit_code": _jobs.c.exit_code,
        "archived": _annotations.c.archived_at,
    }
    return columns[key]
