"""Provide inputs from the node's cache: list, fetch, unpack and hold them."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.agent.data import cache
from allranks.agent.data.cache import Tree
from allranks.agent.data.file_entry import Changed, FileEntry
from allranks.agent.data.input_source import InputRequest, Source
from allranks.errors import AllranksError, Passing, is_passing

# Seconds between progress messages.
_REPORT_SECONDS = 0.5
# Attempts to fetch an input whose source changes meanwhile.
_ATTEMPTS = 3
# An archive bomb grows by more than this factor, and to more than this number of bytes.
_MAX_GROWTH, _MIN_BOMB_SIZE = 200, 1 << 30
# Space to free before unpacking, in multiples of the archives' size.
_EXPECTED_GROWTH = 4


class CachedInput(NamedTuple):
    """An input in the cache. ``path`` is for the job, ``tree`` the entry's folder; ``size`` is in
    bytes, of which ``moved`` were transferred."""

    path: str
    tree: str
    files: int
    size: int
    moved: int


class InputCache:
    """Provides inputs from the cache ``folder`` of at most ``limit`` bytes, and holds them until
    closed. ``say`` receives progress as a mapping."""

    def __init__(self, folder: Path, limit: int | None, say: Any) -> None:
        self._folder, self._limit, self._say = folder, limit, say
        self._stack = ExitStack()
        self._reported_at, self._started_at = 0.0, 0.0

    def __enter__(self) -> InputCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def provide(self, wanted: InputRequest) -> CachedInput:
        """Fetch an input unless the cache has it, and hold it until closed. Raises
        AllranksError."""
        self._started_at = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(_ATTEMPTS):
            try:
                return self._provide(Source(wanted))
            except Changed:
                time.sleep(number)
        raise AllranksError(
            f"the input {wanted.name} keeps changing while it is fetched",
            where=wanted.location,
            hint="use a location that nothing writes to while jobs read it",
        )

    def cached(self, wanted: InputRequest) -> tuple[Tree, bool] | None:
        """Hold an input that needs no transfer. Returns its entry and whether it is a single file,
        or None. Raises AllranksError."""
        source = Source(wanted)
        items, is_file = source.list_files()
        tree = self._acquire(self._goal(wanted, items))
        return None if tree is None or tree.damaged() else (tree, is_file)

    def _goal(self, wanted: InputRequest, items: Sequence[FileEntry]) -> Path:
        content = cache.content_id(items, wanted.unpack)
        return self._folder / f"{cache.source_id(wanted.uri or wanted.source)}-{content}"

    def _provide(self, source: Source) -> CachedInput:
        wanted = source.request
        items, is_file = source.list_files()
        goal = self._goal(wanted, items)
        tree, moved = self._acquire(goal), 0
        if tree is None or tree.damaged():
            with cache.exclusive(goal, lambda: self._report(wanted, waiting=True)):
                tree = self._acquire(goal)
                if tree is None:
                    tree, moved = self._fill(source, items, goal)
                    self._acquire(goal)
                elif names := tree.damaged():
                    tree, moved = self._repair(source, items, tree, names)
                    self._acquire(goal)
        return _as_cached_input(wanted, tree, is_file, moved)

    def _acquire(self, goal: Path) -> Tree | None:
        """The entry, if it exists; it is not evicted until we close."""
        file = cache.acquire(goal)
        if file is None:
            return None
        tree = cache.read(goal)
        if tree is None:  # unreadable: do not hold it, so that it can be replaced
            os.close(file)
            return None
        self._stack.callback(os.close, file)
        return tree

    def _fill(self, source: Source, items: Sequence[FileEntry], goal: Path) -> tuple[Tree, int]:
        partial = cache.prepare(goal, items)
        size = sum(item.size for item in items)
        present = sum(os.lstat(file).st_blocks * 512 for file in folder_trees.files(partial))
        source_id = goal.name.partition("-")[0]
        cache.make_room(self._folder, max(0, size - present), self._limit, source_id)
        crcs, moved = self._fetch(source, items, partial)
        files = [(item.name, crcs[item.name], item.tag) for item in items]
        if source.request.unpack:
            files = self._unpack(source, items, partial)
        return cache.publish(goal, partial, files), moved

    def _repair(
        self, source: Source, items: Sequence[FileEntry], tree: Tree, names: Sequence[str]
    ) -> tuple[Tree, int]:
        """Fetch changed files again. An unpacked entry is made again as a whole."""
        if source.request.unpack:
            self._stack.close()
            if cache.remove_if_unused(tree.folder):
                return self._fill(source, items, tree.folder)
            raise AllranksError(
                f"{len(names)} files in the cache were modified, and another job is using them",
                where=str(tree.folder),
                hint="wait until that job has ended; they are then unpacked again",
            )
        partial = tree.folder.with_suffix(".part")
        cache.remove(partial)
        (partial / cache.DATA).mkdir(parents=True)
        damaged = [item for item in items if item.name in set(names)]
        crcs, moved = self._fetch(source, damaged, partial)
        return cache.repair(tree, partial, names, crcs), moved

    def _fetch(
        self, source: Source, items: Sequence[FileEntry], partial: Path
    ) -> tuple[dict[str, int], int]:
        total, done, fetched = sum(item.size for item in items), 0, 0

        def report(count: int, moved: bool) -> None:
            nonlocal done, fetched
            done, fetched = done + count, fetched + (count if moved else 0)
            # After a lost connection, some bytes are transferred again.
            self._report(source.request, done=min(done, total), total=total)

        try:
            crcs = source.fetch(items, partial / cache.DATA, partial / "journal", report)
            return crcs, fetched
        except OSError as error:
            if error.errno is None or isinstance(error, FileNotFoundError):
                raise source.explain(error) from None
            cache.remove(partial)  # free the space for other inputs
            kind = Passing if is_passing(error) else AllranksError
            raise kind(
                f"cannot store the input {source.request.name}: {error.strerror}",
                where=str(self._folder),
                hint="free some space, or set another cache folder for the compute: --cache PATH",
            ) from None

    def _unpack(
        self, source: Source, items: Sequence[FileEntry], partial: Path
    ) -> list[tuple[str, int, str]]:
        """Replace the archives by their contents. Returns the cache's file rows."""
        from allranks.agent.archives.unpack import is_archive, stem, unpack  # lazy: few inputs are

        wanted, packed = source.request, partial / cache.PACKED
        (partial / cache.DATA).rename(packed)
        data = partial / cache.DATA
        data.mkdir()
        pairs: list[tuple[Path, Path]] = []
        for item in items:
            if not is_archive(item.name):
                goal = data / item.name
                goal.parent.mkdir(parents=True, exist_ok=True)
                os.rename(packed / item.name, goal)
                continue
            goal = data if len(items) == 1 else data / stem(item.name)
            if goal != data and (goal.exists() or goal in dict(pairs).values()):
                raise AllranksError(
                    f"two files of the input {wanted.name} unpack to {stem(item.name)!r}",
                    where=wanted.location,
                    hint="an archive is unpacked to a folder of its name: rename one of the two",
                )
            pairs.append((packed / item.name, goal))
        if not pairs:
            raise AllranksError(
                f"no archive in the input {wanted.name}",
                where=wanted.location,
                hint="archives are .tar, .tar.gz, .tar.zst, .zip and the like; or remove `unpack`",
            )
        size = sum((packed / item.name).stat().st_size for item in items if is_archive(item.name))
        # The unpacked size is not known yet.
        with suppress(AllranksError):
            cache.make_room(
                self._folder, size * _EXPECTED_GROWTH, self._limit, partial.name.partition("-")[0]
            )
        room = cache.make_room(self._folder, 0, self._limit, "")
        limit = min(room, max(size * _MAX_GROWTH, _MIN_BOMB_SIZE))
        try:
            unpack(pairs, limit, lambda n, _: self._report(wanted, unpacked=n, of=len(pairs)))
        except AllranksError as error:
            cache.remove(partial)
            # Name the source: the local copy is already deleted.
            name = os.path.relpath(error.where, packed) if error.where else ""
            location = wanted.location if len(items) == 1 else f"{wanted.location}/{name}"
            raise AllranksError(error.message, where=location, hint=error.hint) from None
        except BaseException:
            cache.remove(partial)
            raise
        cache.remove(packed)
        paths = (
            os.path.join(folder, name)
            for folder, _, names in folder_trees.walk(data)
            for name in names
        )
        files = (path for path in paths if not os.path.islink(path))
        return sorted((os.path.relpath(path, data), 0, "") for path in files)

    def _report(self, wanted: InputRequest, **how: Any) -> None:
        now = time.monotonic()
        if now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            self._say({"input": wanted.name, "seconds": now - self._started_at, **how})


def all_cached(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The mover's messages for all inputs if none needs a transfer; otherwise an empty list."""
    inputs = [InputRequest.load(each) for each in request["inputs"]]
    with InputCache(Path(request["cache"]), request["limit"], lambda message: None) as provider:
        entries = [provider.cached(each) for each in inputs]
        if None in entries:
            return []
        return [
            {"provided": wanted.name, **_as_cached_input(wanted, *entry, 0)._asdict()}
            for wanted, entry in zip(inputs, entries, strict=True)
            if entry is not None
        ]


def _as_cached_input(wanted: InputRequest, tree: Tree, is_file: bool, moved: int) -> CachedInput:
    data = tree.data
    if wanted.copy:
        data = _link_files(tree, Path(wanted.copy))
    path = data / tree.files[0][0] if is_file and not wanted.unpack else data
    return CachedInput(str(path), str(tree.folder), len(tree.files), tree.size, moved)


def _link_files(tree: Tree, goal: Path) -> Path:
    """Hard-link the files into a folder of the job, in which it may add and remove files."""
    folder_trees.remove(goal, ignore_errors=True)
    goal.mkdir(parents=True)
    for each in {os.path.dirname(row[0]) for row in tree.files} - {""}:
        folder_trees.make(goal / each)
    data, to, link = f"{tree.data}/", f"{goal}/", os.link
    try:
        for row in tree.files:
            link(data + row[0], to + row[0])
        for path in _symlinks(tree.data):
            os.symlink(os.readlink(path), to + os.path.relpath(path, tree.data))
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        # Another disk, too many links to a file, or a file system without hard links.
        folder_trees.remove(goal)
        shutil.copytree(tree.data, goal, symlinks=True)
        for folder, _, _ in folder_trees.walk(goal):
            os.chmod(folder, 0o755)
    return goal


def _symlinks(folder: Path) -> Iterator[str]:
    """Symbolic links, which only unpacked entries have."""
    for each, folders, files in folder_trees.walk(folder):
        yield from (path for n in (*folders, *files) if os.path.islink(path := f"{each}/{n}"))
