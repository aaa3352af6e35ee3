"""List what a home stores: each thing with its path and its last use. Changes nothing.

A new kind of things needs a row in `core.data.garbage_rules.RULES` and a function in ``LOOKS``.
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
from allranks.core.data.garbage_rules import HOUR, Found, Job, Kind
from allranks.core.data.upload_manifest import is_digest
from allranks.core.packing import unpack
from allranks.core.plan import Recipe
from allranks.engines import pinned_code
from allranks.server.assets.data_locations import referred
from allranks.settings import Home
from allranks.store.files.state_folders import INCOMING as PIECES
from allranks.store.files.state_folders import NAMED, OF_JOBS
from allranks.store.files.trees import GOING, TEMPORARY_PREFIX
from allranks.store.jobs.job_rows import Uses

_ENVIRONMENT = re.compile(r"(?P<recipe>[0-9a-f]{24})(-[0-9a-f]{8})?(?P<rest>\..*)?")
# The depth to search for recent changes in unfinished folders.
_DEPTH = 5

Look = Callable[[Home, Sequence[Job]], Iterator[Found]]


def job(home: Home, row: Uses) -> Job:
    """The parts of a job that decide what is kept."""
    inputs = [source.get("source") or "" for source in row.sources or ()]
    reused = {str(name) for name in [(row.notes or {}).get("reused")] if name}
    return Job(
        name=row.name,
        live=row.live,
        created_at=row.created_at,
        ended_at=row.ended_at,
        codes=row.codes(),
        recipe=recipe_hash(unpack(Recipe, row.recipe)) if row.recipe is not None else None,
        in_place=row.in_place,
        refers=referred(row.inputs) | {*_at(home.jobs, (*inputs, row.in_place or ""))} | reused,
        models={*_at(home.models, inputs)},
        uploads=row.uploads(),
    )


def behind(home: Home, paths: Iterable[str]) -> set[str]:
    """The jobs in whose outputs these paths of data assets are."""
    paths = [*paths]
    references = (referred({"": path}) for path in paths)
    return {*_at(home.jobs, paths)}.union(*references)


def _at(root: Path, paths: Iterable[str]) -> Iterator[str]:
    """The names of the jobs or models below ``root`` that contain these paths."""
    for path in map(Path, paths):
        for folder in (root, root.resolve()):
            if path.is_relative_to(folder) and path != folder:
                yield path.relative_to(folder).parts[0]


def jobs(home: Home, all_jobs: Sequence[Job]) -> Iterator[Found]:
    """Ended jobs, the newest first, since jobs that read another's outputs are newer."""
    for each in reversed(all_jobs):
        if not each.live and each.ended_at is not None:
            path = str(home.jobs / each.name)
            yield Found(Kind.JOB, each.name, path, each.ended_at, each.name)


def environments(home: Home, all_jobs: Sequence[Job]) -> Iterator[Found]:
    """Virtual environments and remains of building them, except those being built right now."""
    ended: dict[str, float] = {}
    for each in all_jobs:
        if each.recipe is not None and each.ended_at is not None:
            ended[each.recipe] = max(each.ended_at, ended.get(each.recipe, 0.0))
    candidates = {path: _ENVIRONMENT.fullmatch(path.name) for path in _within(home.environments)}
    made = {m["recipe"] for path, m in candidates.items() if m and not m["rest"] and path.is_dir()}
    for path, match in candidates.items():
        if not match or file_locks.is_held(_lock_of(path)):
            continue
        rest = match["rest"] or ""
        if path.is_dir() and not rest:
            ready = path / READY
            key = _recipe(ready)
            looked = ready if ready.exists() else path
            used = max(_changed(looked), ended.get(key, 0.0))
            yield Found(Kind.ENVIRONMENT, path.name, str(path), used, key, str(looked))
        elif path.is_dir():
            log = path.with_name(f"{match['recipe']}.log")
            used = max(_changed_within(path, _DEPTH), _changed(log))
            yield Found(Kind.UNFINISHED, path.name, str(path), used, looked=str(path))
        elif rest in (".log", ".lock") and match["recipe"] not in made:
            yield Found(Kind.LOG, path.name, str(path), _changed(path), looked=str(path))


def code(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Blobs, also incomplete ones; not those that are files of uploads."""
    for folder in _within(home.blobs):
        for path in _within(folder):
            if _has_more_names(path):
                continue
            yield Found(
                Kind.CODE, path.name, str(path), _changed(path), path.name, looked=str(path)
            )


def checkouts(home: Home, all_jobs: Sequence[Job]) -> Iterator[Found]:
    """Git repositories, and the checked-out commits in them."""
    needed = [each.in_place for each in all_jobs if each.in_place is not None]
    for place in _within(home.code):
        if place.name.startswith(GOING):
            continue
        commits = [path for path in _within(place) if not path.name.startswith(GOING)]
        used = max([_changed(place), *(_changed(path) for path in commits)])
        key = _one_in(place, needed)
        yield Found(Kind.CHECKOUT, place.name, str(place), used, key, str(place))
        for path in commits:
            if path.name != "repository":
                key, name = _one_in(path, needed), f"{place.name}/{path.name}"
                yield Found(Kind.CHECKOUT, name, str(path), _changed(path), key, str(path))


def _one_in(folder: Path, paths: Iterable[str]) -> str:
    """The first of the paths that is inside a folder; empty: none."""
    whole = folder.resolve()
    return next((path for path in paths if Path(path).is_relative_to(whole)), "")


def nodes(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Working folders of a gang's agents."""
    for path in _within(home.nodes):
        if not path.name.startswith(GOING):
            key = path.name.rpartition(".")[0]
            used = _changed_within(path, 2)
            yield Found(Kind.NODE, path.name, str(path), used, key, str(path))


def data(home: Home, all_jobs: Sequence[Job]) -> Iterator[Found]:
    """Cached data. Readers hold a lock; because hosts may not see each other's locks, data used
    since the oldest live job was created is not listed."""
    since = min((each.created_at for each in all_jobs if each.live), default=math.inf) - HOUR
    for path in _within(home.cache):
        looked = path / cache.MANIFEST
        if path.suffix == ".part" and not file_locks.is_held(path.with_suffix(".lock")):
            used, looked = _changed_within(path, _DEPTH), path
        elif not path.suffix and looked.exists():
            used = _changed(looked)
        else:
            continue
        if used < since:
            yield Found(Kind.DATA, path.name, str(path), used, looked=str(looked))


def pinned(home: Home, all_jobs: Sequence[Job]) -> Iterator[Found]:
    """Copies of the agent's code, but for those that agents of a live job may have started from."""
    since = min((each.created_at for each in all_jobs if each.live), default=math.inf) - HOUR
    for path in _within(home.pinned):
        if (
            not pinned_code.is_own(path)
            and not path.name.startswith(GOING)
            and _changed(path) < since
        ):
            yield Found(Kind.PINNED, path.name, str(path), _changed(path), looked=str(path))


def models(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Files of models, and remains of registering them."""
    for path in _within(home.models):
        if path.name.startswith(TEMPORARY_PREFIX):
            used = _changed_within(path, _DEPTH)
            yield Found(Kind.UNREGISTERED, path.name, str(path), used, looked=str(path))
        elif not path.name.startswith(GOING):
            yield Found(Kind.MODEL, path.name, str(path), _changed(path), path.name, str(path))


def uploads(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Uploaded data, and remains of making it from blobs."""
    for path in _within(home.uploads):
        if path.name.startswith(TEMPORARY_PREFIX):
            used = _changed_within(path, _DEPTH)
            yield Found(Kind.HALF_UPLOAD, path.name, str(path), used, looked=str(path))
        elif is_digest(path.name):
            yield Found(Kind.UPLOAD, path.name, str(path), _changed(path), path.name, str(path))


def states(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Own states of jobs, and partial uploads of any state. Named states are always kept."""
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
    """Folders that a killed garbage collection had renamed but not deleted."""
    repositories = (each for root in [home.code] for each in (root, *_within(root)))
    kept = (home.environments, home.nodes, home.jobs, home.cache, home.models, home.uploads)
    roots = (*kept, home.pinned, home.states / NAMED, home.states / OF_JOBS)
    for root in itertools.chain(roots, repositories):
        for path in _within(root):
            in_cache = root == home.cache and path.suffix == ".gone"
            if path.name.startswith(GOING) or in_cache:
                yield Found(Kind.TRASH, path.name, str(path), _changed(path), looked=str(path))


def copies(home: Home, _: Sequence[Job]) -> Iterator[Found]:
    """Remains of copying a job's files for its continuation."""
    for path in _within(home.jobs):
        if path.name.startswith(TEMPORARY_PREFIX):
            used = _changed_within(path, _DEPTH)
            yield Found(Kind.COPY, path.name, str(path), used, looked=str(path))


# In the order of deletion; `garbage_collection` deletes job records before all of them.
LOOKS: tuple[Look, ...] = (
    going,
    copies,
    environments,
    uploads,
    code,
    checkouts,
    nodes,
    data,
    pinned,
    models,
    states,
)


def size(path: Path) -> int:
    """The bytes that deleting ``path`` frees: files with hard links elsewhere do not count, nor do
    unreadable ones."""
    total, links = 0, dict[tuple[int, int], int]()
    pending = [str(path)]
    while pending:
        entry_path = pending.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(entry_path)
            if stat.S_ISDIR(status.st_mode):
                total += status.st_blocks * 512
                pending += [entry.path for entry in os.scandir(entry_path)]
                continue
            inode = (status.st_dev, status.st_ino)
            links[inode] = links.get(inode, 0) + 1
            if links[inode] == status.st_nlink:
                total += status.st_blocks * 512
    return total


def changed(path: str) -> float:
    """The modification time. Raises OSError."""
    return os.lstat(path).st_mtime


def _changed(path: Path) -> float:
    try:
        return changed(str(path))
    except FileNotFoundError:
        return 0.0  # deleted meanwhile


def _has_more_names(path: Path) -> bool:
    try:
        return os.lstat(path).st_nlink > 1 and path.is_file()
    except FileNotFoundError:
        return False  # deleted meanwhile


def _changed_within(path: Path, depth: int) -> float:
    """The latest modification time in a folder, to the given depth."""
    newest = _changed(path)
    if depth and path.is_dir() and not path.is_symlink():
        newest = max([newest, *(_changed_within(each, depth - 1) for each in _within(path))])
    return newest


def _within(folder: Path) -> list[Path]:
    """The sorted entries of a folder; none if it does not exist. Raises OSError."""
    try:
        return sorted(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _lock_of(path: Path) -> Path:
    return path.with_name(f"{path.name[:24]}.lock")


def _recipe(ready: Path) -> str:
    """The digest of an environment's recipe; empty if unknown."""
    try:
        return str(json.loads(ready.read_text()).get("recipe") or "")
    except (OSError, ValueError, AttributeError):
        return ""


def disk_usage(root: Path) -> dict[str, int]:
    """Bytes on disk, as `du` counts them, by the name of each entry of ``root``; ``.`` is the
    folder ``root`` itself. Hard links count once; unreadable files are skipped."""
    inodes: set[tuple[int, int]] = set()
    usage = {".": os.stat(root).st_blocks * 512}
    for name in sorted(os.listdir(root)):
        usage[name] = _size(os.path.join(root, name), inodes)
    return usage


def _size(path: str, inodes: set[tuple[int, int]]) -> int:
    total, pending = 0, [path]
    while pending:
        entry_path = pending.pop()
        with contextlib.suppress(OSError):
            status = os.lstat(entry_path)
            if status.st_nlink > 1 and not stat.S_ISDIR(status.st_mode):
                inode = (status.st_dev, status.st_ino)
                if inode in inodes:
                    continue
                inodes.add(inode)
            total += status.st_blocks * 512
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(entry_path) as entries:
                    pending += [entry.path for entry in entries]
    return total
