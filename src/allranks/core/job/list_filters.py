"""Which jobs a list shows and in which order: the words of `job list`, read. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from allranks.errors import UsageError
from allranks.statuses import JobStatus

# Sort keys that the database sorts by, and other names of them.
SORTS = (
    *("created", "started", "ended", "duration", "name", "status", "experiment"),
    *("display_name", "exit_code", "archived"),
)
SAME_SORTS = {"took": "duration", "age": "-created"}
# The other columns of a list. Any other word is a metric, a parameter or an input.
COLUMNS = ("compute", "by", "ranks", "nodes", "attempts")
ALL_SORTS = (*SORTS, *SAME_SORTS, *COLUMNS)
# Columns with a name behind the dot.
NAMED = ("inputs.", "tags.")
# The property of a job with the name of who submitted it; without one it was the home's owner.
CREATED_BY, OWNER = "allranks.created_by", "owner"
OPERATORS = ("<=", ">=", "!=", "==", "<", ">", "=")
_METRIC, _BEST = "metrics.", "best."
_CONDITION = re.compile(
    rf"(?P<metric>.*?(?:<.*>|[^<>=!\s]))\s*(?P<operator>{'|'.join(OPERATORS)})\s*(?P<value>[^<>=!]*)"
)


class Condition(NamedTuple):
    """What the last value of a metric has to be; ``operator`` is one of OPERATORS."""

    metric: str
    operator: str
    value: float


class Sort(NamedTuple):
    """``metric``: whether ``key`` is the name of a metric or, if no job has that metric, of a
    parameter or an input; else it is one of SORTS or another column. ``best``: by the least value
    in the history of the metric, if descending by the greatest; else by its last."""

    key: str
    descending: bool = False
    metric: bool = False
    best: bool = False


class Query(NamedTuple):
    """``statuses``: any of these. ``name`` is a glob (`*`, `?`) or a part of a name or of a display
    name. ``tags`` have a key, and a value or None for any. ``since`` and ``until`` (exclusive) are
    seconds since the epoch, ``ended_since`` of their end. ``archived``: True for archived jobs
    only, None for all. ``parent``: only children of that job; without it none, unless ``children``.
    ``uses``: an asset as NAME or NAME:VERSION. ``by``: who submitted it. ``mentions``: the name of
    an input, a tag or a parameter that it may have; jobs that cannot are left out."""

    statuses: tuple[JobStatus, ...] = ()
    experiment: str | None = None
    name: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()
    since: float | None = None
    until: float | None = None
    ended_since: float | None = None
    metrics: tuple[Condition, ...] = ()
    sort: Sort = Sort("created", descending=True)
    archived: bool | None = False
    limit: int = 50
    parent: str | None = None
    children: bool = False
    uses: str | None = None
    by: str | None = None
    mentions: str = ""


def status(text: str) -> JobStatus:
    """The status of that name, whatever its case. Raises UsageError."""
    for member in JobStatus:
        if text.lower() == member.lower():
            return member
    hint = f"use one of {', '.join(JobStatus)}"
    raise UsageError(f"{text[:80]!r} is not a status of jobs", where="status", hint=hint)


def condition(text: str) -> Condition:
    """What `loss<0.5` says. Raises UsageError."""
    match = _CONDITION.fullmatch(text.strip())
    try:
        if match is not None:
            metric = match["metric"].removeprefix(_METRIC)
            return Condition(metric, match["operator"], float(match["value"]))
    except ValueError:
        pass
    hint = "a metric, an operator and a number: --metric 'loss<0.5'"
    raise UsageError(f"{text[:80]!r} is not a condition", where="--metric", hint=hint)


def sort(text: str) -> Sort:
    """What `created`, `loss`, `-loss` or `best.loss` says; `-` is descending. Raises UsageError."""
    key, descending = text.removeprefix("-"), text.startswith("-")
    if same := SAME_SORTS.get(key):
        return Sort(same.removeprefix("-"), descending != same.startswith("-"))
    best, key = key.startswith(_BEST), key.removeprefix(_BEST)
    if not key.removeprefix(_METRIC):
        hint = f"a metric, best.METRIC, or one of {', '.join(ALL_SORTS)}; `-` for descending"
        raise UsageError(f"{text!r} is not a sort key", where="--sort", hint=hint)
    metric = best or (key not in ALL_SORTS and not key.startswith(NAMED))
    return Sort(key.removeprefix(_METRIC), descending, metric, best)


def tag(text: str) -> tuple[str, str | None]:
    """What `team=vision` (that value) or `team` (any value) says. Raises UsageError."""
    key, separator, value = text.partition("=")
    if not key:
        hint = "--tag KEY=VALUE, or --tag KEY for any value"
        raise UsageError(f"{text[:80]!r} is not a tag", where="--tag", hint=hint)
    return key, value if separator else None


def like(name: str) -> str:
    """The pattern of SQL's LIKE, escaped by `\\`, for a glob or a part of a name."""
    pattern = re.sub(r"([%_\\])", r"\\\1", name)
    if "*" in name or "?" in name:
        return pattern.replace("*", "%").replace("?", "_")
    return f"%{pattern}%"
