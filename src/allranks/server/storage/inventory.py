"""What a home keeps: each thing with its place and when it was last used. Nothing is changed here.

A new kind of things is a row in `plan.retention.RULES` and a function in ``LOOKS``.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from allranks import file_locks
from allranks.agent.data import cache
from allranks.agent.environments.virtual_environments import READY, recipe_hash
from allranks.plan.data.retention import HOUR, Found, Job, Kind
from allranks.plan.plan import Recipe
from allranks.server.assets.data_locations import referred
from allranks.settings import Home
from allranks.store.files.state_folders import INCOMING as PIECES
from allranks.store.files.state_folders import NAMED, OF_JOBS
from allranks.store.files.trees import TEMPORARY_PREFIX
from allranks.store.job_rows import Uses

# What is on its way out is called so, beside the place that it had.
GOING = ".going-"
_ENVIRONMENT = re.compile(r"(?P<recipe>[0-9a-f]{24})(-[0-9a-f]{8})?(?P<rest>\..*)?")
# So deep in the folder of an environment that is being made lies what tells that it is.
_DEEP = 5

Look = Callable[[Home, Sequence[Job]], Iterator[Found]]


def job(home: Home, row: Uses) -> Job:
    """What of a job matters to what is kept."""
    inputs = [each.get("source") or "" for each in row.sources or ()]
    return Job(
        name=row.name,
        live=row.live,
        created_at=row.created_at,
        ended_at=row.ended_at,
        code=row.code,
        recipe=recipe_hash(Recipe.load(row.recipe)) if row.recipe is not None else None,
        in_place=row.in_place,
        refers=referred(row.inputs) | {*_at(home.jobs, (*inputs, row.in_place or ""))},
        models={*_at(home.models, inputs)},
    )


def behind(home: Home, paths: Iterable[str]) -> set[str]:
    """The jobs whose outputs these are, which data assets are said to lie at."""
    paths = [*paths]
    found = (referred({"": path}) for path in paths)
    return {*_at(home.jobs, paths)}.union(*found)


def _at(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """The jobs, or models, in whose folders below ``root`` these lie."""
    for path in map(Path, paths):
        for each in (root, root.resolve()):
            if path.is_relative_to(each) and path != each:
                yield path.relative_to(each).parts[0]


def jobs(home: Home, known: Sequence[Job]) -> Iterator[Found]:
    """Records of jobs that have ended, the newest first: who reads another's outputs is newer."""
    for each in reversed(known):
        if not each.live and each.ended_at is not None:
            path = str(home.jobs / each.name)
            yield Found(Kind.JOB, each.name, path, each.ended_at, each.name)


def environments(home: Home, known: Sequence[Job]) -> Iterator[Found]:
    """Virtual environments, and what is left of making them. Of those that are being made right
    now nothing is told."""
    ended: dict[str, float] = {}
    for each in known:
        if each.recipe is not None and each.ended_at is not None:
            ended[each.recipe] = max(each.ended_at, ended.get(each.recipe, 0.0))
    there = {path: _ENVIRONMENT.fullmatch(path.name) for path in _within(home.environments)}
    made = {m["recipe"] for path, m in there.items() if m and not m["rest"] and path.is_dir()}
    for path, matched in there.items():
        if not matched or file_locks.is_held(_lock_of(path)):
            continue
        rest = matched["rest"] or ""
        if path.is_dir() and not rest:
            ready = path / READY
            key = _recipe(ready)
            looked = ready if ready.exists() else path
            used = max(_changed(looked), ended.get(key, 0.0))
            yield Found(Kind.ENVIRONMENT, path.name, str(path), used, key, str(looked))
        elif path.is_dir():
            log = path.with_name(f"{matched['recipe']}.log")
            used = max(_changed_within(path, _DEEP), _changed(log))
            yield Found(Kind.UNFINISHED, path.name, str(path), used, looked=str(path))
        elif rest in (".log", ".lock") and matched["recipe"] not in made:
            yield Found(Kind.LOG, path.name, str(path), _changed(path), looked=str(path))


def code(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Blobs, and what came of some and never the rest."""
    for folder in _within(home.blobs):
        for path in _within(folder):
            yield Found(
                Kind.CODE, path.name, str(path), _changed(path), path.name, looked=str(path)
            )


def checkouts(home: Home, known: Sequence[Job]) -> Iterator[Found]:
    """Repositories, whole when nothing of one is in use, and commits of those that are."""
    needed = [each.in_place for each in known if each.in_place is not None]
    for place in _within(home.code):
        if place.name.startswith(GOING):
            continue
        here = [path for path in _within(place) if not path.name.startswith(GOING)]
        used = max([_changed(place), *(_changed(path) for path in here)])
        key = _one_in(place, needed)
        yield Found(Kind.CHECKOUT, place.name, str(place), used, key, str(place))
        for path in here:
            if path.name != "repository":
                key, name = _one_in(path, needed), f"{place.name}/{path.name}"
                yield Found(Kind.CHECKOUT, name, str(path), _changed(path), key, str(path))


def _one_in(folder: Path, paths: Iterable[str]) -> str:
    """One of the paths that lies in a folder; empty if none does."""
    whole = folder.resolve()
    return next((each for each in paths if Path(each).is_relative_to(whole)), "")


def nodes(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Folders that agents of a gang work in."""
    for path in _within(home.nodes):
        if not path.name.startswith(GOING):
            key = path.name.rpartition(".")[0]
            used = _changed_within(path, 2)
            yield Found(Kind.NODE, path.name, str(path), used, key, str(path))


def data(home: Home, known: Sequence[Job]) -> Iterator[Found]:
    """Data from elsewhere in the home's own cache. Who reads it holds a lock; where hosts do not
    see each other's locks, nothing of it is told that was used since the oldest live job came."""
    since = min((each.created_at for each in known if each.live), default=math.inf) - HOUR
    for path in _within(home.cache):
        looked = path / cache.MANIFEST
        if path.suffix == ".part" and not file_locks.is_held(path.with_suffix(".lock")):
            used, looked = _changed_within(path, _DEEP), path
        elif not path.suffix and looked.exists():
            used = _changed(looked)
        else:
            continue
        if used < since:
            yield Found(Kind.DATA, path.name, str(path), used, looked=str(looked))


def models(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Files of models, and what is left of registering some."""
    for path in _within(home.models):
        if path.name.startswith(TEMPORARY_PREFIX):
            used = _changed_within(path, _DEEP)
            yield Found(Kind.UNREGISTERED, path.name, str(path), used, looked=str(path))
        elif not path.name.startswith(GOING):
            yield Found(Kind.MODEL, path.name, str(path), _changed(path), path.name, str(path))


def states(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Own states of jobs, and what has come of contents of any. Those with a name stay."""
    for kind in (NAMED, OF_JOBS):
        for path in _within(home.states / kind):
            if path.name.startswith(TEMPORARY_PREFIX):
                yield Found(Kind.PIECE, path.name, str(path), _changed(path), looked=str(path))
            elif kind == OF_JOBS and not path.name.startswith("."):
                yield Found(Kind.STATE, path.name, str(path), _changed(path), path.name, str(path))
    for folder in (each for kind in (NAMED, OF_JOBS) for each in _within(home.states / kind)):
        for path in _within(folder / PIECES):
            name = f"{folder.name}/{path.name[:12]}"
            yield Found(Kind.PIECE, name, str(path), _changed(path), looked=str(path))


def going(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """What one who was clearing up had put away, and was killed before it was gone."""
    repositories = (each for root in [home.code] for each in (root, *_within(root)))
    kept = (home.environments, home.nodes, home.jobs, home.cache, home.models)
    roots = (*kept, home.states / NAMED, home.states / OF_JOBS)
    for root in itertools.chain(roots, repositories):
        for path in _within(root):
            in_cache = root == home.cache and path.suffix == ".gone"
            if path.name.startswith(GOING) or in_cache:
                yield Found(Kind.TRASH, path.name, str(path), _changed(path), looked=str(path))


def copies(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """What is left of copying what one job left for another."""
    for path in _within(home.jobs):
        if path.name.startswith(TEMPORARY_PREFIX):
            used = _changed_within(path, _DEEP)
            yield Found(Kind.COPY, path.name, str(path), used, looked=str(path))


# In the order in which things go; records of jobs before all of them, see `clearing`.
LOOKS: tuple[Look, ...] = (
    going,
    copies,
    environments,
    code,
    checkouts,
    nodes,
    data,
    models,
    states,
)


def size(path: Path) -> int:
    """The bytes that are free once it is gone: what another folder has too, by a hard link, is
    not. Of what cannot be looked at nothing is counted."""
    total, links = 0, dict[tuple[int, int], int]()
    ways = [str(path)]
    while ways:
        way = ways.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(way)
            if stat.S_ISDIR(status.st_mode):
                total += status.st_blocks * 512
                ways += [entry.path for entry in os.scandir(way)]
                continue
            which = (status.st_dev, status.st_ino)
            links[which] = links.get(which, 0) + 1
            if links[which] == status.st_nlink:
                total += status.st_blocks * 512
    return total


def changed(path: str) -> float:
    """When it was last changed. Raises OSError."""
    return os.lstat(path).st_mtime


def _changed(path: Path) -> float:
    try:
        return changed(str(path))
    except FileNotFoundError:
        return 0.0  # gone meanwhile


def _changed_within(path: Path, deep: int) -> float:
    """When anything in a folder was last changed, ``deep`` folders down."""
    newest = _changed(path)
    if deep and path.is_dir() and not path.is_symlink():
        newest = max([newest, *(_changed_within(each, deep - 1) for each in _within(path))])
    return newest


def _within(folder: Path) -> list[Path]:
    """What lies in a folder, if there is such a folder. Raises OSError when it cannot be read."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name[:24]}.lock")


def _recipe(ready: Path) -> str:
    """What an environment's recipe is known by; empty when it does not say."""
    try:
        return str(json.loads(ready.read_text()).get("recipe") or "")
    except (OSError, ValueError, AttributeError):
        return ""
