"""Provide inputs from the node's cache: list, fetch, unpack and hold them."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from allranks import folder_trees
from allranks.agent.data import cache
from allranks.agent.data.cache import Tree
from allranks.agent.data.file_entry import Changed, FileEntry, Report
from allranks.agent.data.input_request import InputRequest
from allranks.core import packing
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


class Source(Protocol):
    """Lists and reads the files of an input."""

    request: InputRequest

    def list_files(self) -> tuple[list[FileEntry], bool]:
        """This node's share of the files, and whether the input is a single file."""

    def fetch(
        self, items: Sequence[FileEntry], folder: Path, journal: Path, report: Report
    ) -> dict[str, int]:
        """Copy files to ``folder``, and return their checksums by name. Raises Changed."""

    def explain(self, error: Exception) -> AllranksError:
        """The error to show for an exception of the source."""


def _in_store(request: InputRequest) -> Source:
    from allranks.agent.data import input_source  # lazy: opens stores

    return input_source.Source(request)


class InputCache:
    """Provides inputs from the cache ``folder`` of at most ``limit`` bytes, and holds them until
    closed. ``say`` receives progress as a mapping. ``opened`` opens the source of an input, by
    default a store, or a path of this node."""

    def __init__(
        self,
        folder: Path,
        limit: int | None,
        say: Any,
        opened: Callable[[InputRequest], Source] | None = None,
    ) -> None:
        self._folder, self._limit, self._say = folder, limit, say
        self._open = opened or _in_store
        self._stack = ExitStack()
        self._reported_at, self._started_at = 0.0, 0.0

    def __enter__(self) -> InputCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def provide(self, request: InputRequest) -> CachedInput:
        """Fetch an input unless the cache has it, and hold it until closed. Raises
        AllranksError."""
        self._started_at = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(_ATTEMPTS):
            try:
                return self._provide(self._open(request))
            except Changed:
                time.sleep(number)
        raise AllranksError(
            f"the input {request.name} keeps changing while it is fetched",
            where=request.location,
            hint="use a location that nothing writes to while jobs read it",
        )

    def cached(self, request: InputRequest) -> tuple[Tree, bool] | None:
        """Hold an input that needs no transfer. Returns its entry and whether it is a single file,
        or None. Raises AllranksError."""
        items, is_file = self._open(request).list_files()
        tree = self._acquire(self._entry_path(request, items))
        return None if tree is None or tree.damaged() else (tree, is_file)

    def _entry_path(self, request: InputRequest, items: Sequence[FileEntry]) -> Path:
        content = cache.content_id(items, request.unpack)
        return self._folder / f"{cache.source_id(request.uri or request.source)}-{content}"

    def _provide(self, source: Source) -> CachedInput:
        request = source.request
        items, is_file = source.list_files()
        entry = self._entry_path(request, items)
        tree, moved = self._acquire(entry), 0
        if tree is None or tree.damaged():
            with cache.exclusive(entry, lambda: self._report(request, waiting=True)):
                tree = self._acquire(entry)
                if tree is None:
                    tree, moved = self._fill(source, items, entry)
                    self._acquire(entry)
                elif names := tree.damaged():
                    tree, moved = self._repair(source, items, tree, names)
                    self._acquire(entry)
        return _as_cached_input(request, tree, is_file, moved)

    def _acquire(self, entry: Path) -> Tree | None:
        """The entry, if it exists; it is not evicted until we close."""
        file = cache.acquire(entry)
        if file is None:
            return None
        tree = cache.read(entry)
        if tree is None:  # unreadable: do not hold it, so that it can be replaced
            os.close(file)
            return None
        self._stack.callback(os.close, file)
        return tree

    def _fill(self, source: Source, items: Sequence[FileEntry], entry: Path) -> tuple[Tree, int]:
        partial = cache.prepare(entry, items)
        size = sum(item.size for item in items)
        present = sum(os.lstat(file).st_blocks * 512 for file in folder_trees.files(partial))
        source_id = entry.name.partition("-")[0]
        cache.make_room(self._folder, max(0, size - present), self._limit, source_id)
        crcs, moved = self._fetch(source, items, partial)
        files = [(item.name, crcs[item.name], item.tag) for item in items]
        if source.request.unpack:
            files = self._unpack(source, items, partial)
        else:
            times = folder_trees.newest_times({item.name: int(item.mtime * 1e9) for item in items})
            folder_trees.set_times(partial / cache.DATA, times)
        return cache.publish(entry, partial, files), moved

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

        request, packed = source.request, partial / cache.PACKED
        (partial / cache.DATA).rename(packed)
        data = partial / cache.DATA
        data.mkdir()
        pairs: list[tuple[Path, Path]] = []
        for item in items:
            if not is_archive(item.name):
                target = data / item.name
                target.parent.mkdir(parents=True, exist_ok=True)
                os.rename(packed / item.name, target)
                continue
            target = data if len(items) == 1 else data / stem(item.name)
            if target != data and (target.exists() or target in dict(pairs).values()):
                raise AllranksError(
                    f"two files of the input {request.name} unpack to {stem(item.name)!r}",
                    where=request.location,
                    hint="an archive is unpacked to a folder of its name: rename one of the two",
                )
            pairs.append((packed / item.name, target))
        if not pairs:
            raise AllranksError(
                f"no archive in the input {request.name}",
                where=request.location,
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
            unpack(pairs, limit, lambda n, _: self._report(request, unpacked=n, of=len(pairs)))
        except AllranksError as error:
            cache.remove(partial)
            # Name the source: the local copy is already deleted.
            name = os.path.relpath(error.where, packed) if error.where else ""
            location = request.location if len(items) == 1 else f"{request.location}/{name}"
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

    def _report(self, request: InputRequest, **how: Any) -> None:
        now = time.monotonic()
        if now - self._reported_at > _REPORT_SECONDS:
            self._reported_at = now
            self._say({"input": request.name, "seconds": now - self._started_at, **how})


def all_cached(request: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The mover's messages for all inputs if none needs a transfer; otherwise an empty list."""
    inputs = [packing.unpack(InputRequest, fields) for fields in request["inputs"]]
    with InputCache(Path(request["cache"]), request["limit"], lambda message: None) as provider:
        entries = [provider.cached(input_request) for input_request in inputs]
        if None in entries:
            return []
        return [
            {"provided": input_request.name, **_as_cached_input(input_request, *entry, 0)._asdict()}
            for input_request, entry in zip(inputs, entries, strict=True)
            if entry is not None
        ]


def _as_cached_input(request: InputRequest, tree: Tree, is_file: bool, moved: int) -> CachedInput:
    data = tree.data
    if request.copy:
        data = _link_files(tree, Path(request.copy))
    path = data / tree.files[0][0] if is_file and not request.unpack else data
    return CachedInput(str(path), str(tree.folder), len(tree.files), tree.size, moved)


def _link_files(tree: Tree, target: Path) -> Path:
    """Hard-link the files into a folder of the job, in which it may add and remove files."""
    folder_trees.remove(target, ignore_errors=True)
    target.mkdir(parents=True)
    for folder in {os.path.dirname(row[0]) for row in tree.files} - {""}:
        folder_trees.make(target / folder)
    data, to, link = f"{tree.data}/", f"{target}/", os.link
    try:
        for row in tree.files:
            link(data + row[0], to + row[0])
        for path in _symlinks(tree.data):
            os.symlink(os.readlink(path), to + os.path.relpath(path, tree.data))
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        # Another disk, too many links to a file, or a file system without hard links.
        folder_trees.remove(target)
        shutil.copytree(tree.data, target, symlinks=True)
        for folder, _, _ in folder_trees.walk(target):
            os.chmod(folder, 0o755)
    return target


def _symlinks(folder: Path) -> Iterator[str]:
    """Symbolic links, which only unpacked entries have."""
    for parent, folders, files in folder_trees.walk(folder):
        yield from (path for n in (*folders, *files) if os.path.islink(path := f"{parent}/{n}"))
