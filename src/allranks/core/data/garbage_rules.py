"""What of a home's things nobody needs any more: decided from facts, nothing is touched here.

A thing goes when no job that stays needs it and it was not used for long enough. What "long enough"
is follows from its kind alone: one row of a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from enum import StrEnum
from typing import NamedTuple

from allranks.core.amounts import counted

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0


class Kind(StrEnum):
    """The kinds of things a home keeps, in the words they are shown by."""

    JOB = "jobs"
    CODE = "code"
    ENVIRONMENT = "environments"
    UNFINISHED = "unfinished environments"
    LOG = "logs of environments"
    CHECKOUT = "checkouts"
    NODE = "working folders"
    DATA = "cached data"
    PINNED = "copies of the agent's code"
    MODEL = "models"
    UNREGISTERED = "unfinished models"
    UPLOAD = "uploads"
    HALF_UPLOAD = "unfinished uploads"
    STORED = "uploads in datastores"
    STATE = "states"
    PIECE = "unfinished states"
    COPY = "unfinished copies"
    TRASH = "half removed"


class Rule(NamedTuple):
    """``least``: seconds that a thing has to be unused at least; ``older_than``: and as many as who
    cleans up asks for; ``why`` it goes, where ``{idle}`` stands for how long it was unused."""

    least: float
    older_than: bool
    why: str


RULES: Mapping[Kind, Rule] = {
    # Its viewers are still told how it ended, its agents say their last words.
    Kind.JOB: Rule(MINUTE, True, "ended {idle} ago"),
    # The code of a job that is being submitted is there before the job is; who misses it sends it
    # again.
    Kind.CODE: Rule(HOUR, False, "of no job"),
    Kind.ENVIRONMENT: Rule(0.0, True, "not used for {idle}"),
    # Whose lock nobody holds; where hosts do not see each other's locks, its age has to tell.
    Kind.UNFINISHED: Rule(HOUR, False, "its build was interrupted {idle} ago"),
    Kind.LOG: Rule(DAY, True, "its environment is gone"),
    # Who has fetched one reads it right after that.
    Kind.CHECKOUT: Rule(HOUR, True, "not used for {idle}"),
    Kind.NODE: Rule(HOUR, False, "its job is over"),
    Kind.DATA: Rule(HOUR, True, "not used for {idle}"),
    Kind.PINNED: Rule(HOUR, False, "of no running job"),
    Kind.MODEL: Rule(0.0, False, "no version uses it"),
    Kind.UNREGISTERED: Rule(HOUR, False, "its registration was interrupted {idle} ago"),
    # Data is uploaded before its job or asset is there.
    Kind.UPLOAD: Rule(HOUR, True, "of no asset, and not used for {idle}"),
    # Its files may be on their way; only the last object, the manifest, tells of the end.
    Kind.STORED: Rule(DAY, True, "of no asset, and not used for {idle}"),
    Kind.HALF_UPLOAD: Rule(HOUR, False, "it was interrupted {idle} ago"),
    # That of a job that begins as another's is there before the job is.
    Kind.STATE: Rule(HOUR, False, "its job is gone"),
    Kind.PIECE: Rule(HOUR, False, "incomplete for {idle}"),
    # Of what another job left: who copies touches it after every file.
    Kind.COPY: Rule(HOUR, False, "its copy was interrupted {idle} ago"),
    Kind.TRASH: Rule(0.0, False, "left by an interrupted removal"),
}


class Job(NamedTuple):
    """What of a job matters here. ``codes`` are its snapshots, ``recipe`` what its environment is
    known by, ``in_place`` the folder it runs in, ``refers`` the jobs whose outputs it reads,
    ``models`` the files of models that it reads, ``uploads`` the uploaded data."""

    name: str
    live: bool
    created_at: float
    ended_at: float | None
    codes: Set[str] = frozenset()
    recipe: str | None = None
    in_place: str | None = None
    refers: Set[str] = frozenset()
    models: Set[str] = frozenset()
    uploads: Set[str] = frozenset()


class Found(NamedTuple):
    """A thing in a home. ``used``: when it was last used, as far as known; ``key``: what jobs that
    need it know it by; ``looked``: the file or folder whose time of change tells of a use."""

    kind: Kind
    name: str
    path: str
    used: float
    key: str = ""
    looked: str = ""


def goes(candidate: Found, needed: Mapping[Kind, Set[str]], older_than: float, now: float) -> str:
    """Why it goes; empty: it stays. ``needed`` holds keys, see ``needs``."""
    rule, idle = RULES[candidate.kind], now - candidate.used
    least = max(rule.least, older_than if rule.older_than else 0.0)
    if candidate.key in needed.get(candidate.kind, ()) or idle < least:
        return ""
    return rule.why.format(idle=span(idle))


def kept(
    jobs: Iterable[Job],
    protected: Set[str],
    older_than: float,
    now: float,
    least: float = RULES[Kind.JOB].least,
) -> set[str]:
    """The names of jobs whose records stay: those that live or ended lately, the ``protected``,
    and all whose outputs one of these reads."""
    by_name = {job.name: job for job in jobs}
    least = max(least, older_than)
    ways = [
        job.name
        for job in by_name.values()
        if job.live or job.ended_at is None or now - job.ended_at < least or job.name in protected
    ]
    stay: set[str] = set()
    while ways:
        name = ways.pop()
        if name in by_name and name not in stay:
            stay.add(name)
            ways += by_name[name].refers
    return stay


def readers(names: Set[str], jobs: Iterable[Job]) -> list[str]:
    """The other jobs that read outputs of those of these names."""
    return [job.name for job in jobs if names & job.refers and job.name not in names]


def needs(
    jobs: Iterable[Job],
    parts: Mapping[str, Iterable[str]],
    models: Set[str] = frozenset(),
    uploads: Set[str] = frozenset(),
) -> dict[Kind, Set[str]]:
    """The keys of things that jobs which stay need, ``models`` which have a version, and
    ``uploads`` of assets and schedules. ``parts``: the blobs of each code, also of that of
    components."""
    jobs = list(jobs)
    code = {code for job in jobs for code in job.codes} | parts.keys()
    live = [job for job in jobs if job.live]
    used = {*uploads, *(upload for job in live for upload in job.uploads)}
    recipes = {job.recipe for job in live if job.recipe is not None}
    return {
        Kind.CODE: code | {part for digest in code for part in parts.get(digest, ())},
        # Of one that does not say what it was made of, any of these may be the user.
        Kind.ENVIRONMENT: recipes | ({""} if recipes else set()),
        Kind.CHECKOUT: {job.in_place for job in jobs if job.in_place is not None},
        Kind.NODE: {job.name for job in live},
        Kind.STATE: {job.name for job in jobs},
        Kind.MODEL: {*models, *(model for job in live for model in job.models)},
        Kind.UPLOAD: used,
        Kind.STORED: used,
    }


def span(seconds: float) -> str:
    """A time that has passed, in its largest unit: ``31 days``."""
    units = (("day", DAY), ("hour", HOUR), ("minute", MINUTE), ("second", 1.0))
    word, size = next((unit for unit in units if seconds >= unit[1]), units[-1])
    count = int(seconds // size)
    return counted(count, word)
