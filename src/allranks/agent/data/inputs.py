"""Inputs from elsewhere, had in a node's cache: looked up, fetched, unpacked, and held."""

from __future__ import annotations

import errno
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from allranks.agent.data import cache
from allranks.agent.data.cache import Tree
from allranks.agent.data.file_entry import Changed, Item
from allranks.agent.data.input_source import Source, Wanted
from allranks.errors import AllranksError, Passing, is_passing
from allranks.masking import without_credentials

# Seconds from one word of how far it is to the next.
_BEAT = 0.5
# How often something may change while it is fetched, before that is told.
_CHANGES = 3
# A bomb: what grows by more than that, and by more than so many bytes.
_GROWTH, _ALWAYS_FINE = 200, 1 << 30
# How much larger than the archives what was in them may be expected to be.
_USUAL = 4


class CachedInput(NamedTuple):
    """Where it is, of how many files and bytes, and how many of the bytes had to be moved."""

    path: str
    tree: str
    files: int
    size: int
    moved: int


class InputCache:
    """Has inputs in the cache ``folder``, which may hold ``limit`` bytes; ``say`` hears how far it
    is, as a mapping."""

    def __init__(self, folder: Path, limit: int | None, say: Any) -> None:
        self._folder, self._limit, self._say = folder, limit, say
        self._stack = ExitStack()
        self._told, self._began = 0.0, 0.0

    def __enter__(self) -> InputCache:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def provide(self, wanted: Wanted) -> CachedInput:
        """Have it there, and hold it as long as this lives. Raises AllranksError."""
        self._began = time.monotonic()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in range(_CHANGES):
            try:
                return self._provide(Source(wanted))
            except Changed:
                time.sleep(number)
        raise AllranksError(
            f"the input {wanted.name} goes on changing while it is fetched",
            where=without_credentials(wanted.uri or wanted.source),
            hint="give it a place that nobody writes to while jobs read it",
        )

    def there(self, wanted: Wanted) -> tuple[Tree, bool] | None:
        """What is there and held, if nothing has to be moved for it; whether that is one file.
        Raises AllranksError."""
        source = Source(wanted)
        items, is_file = source.items()
        tree = self._held(self._goal(wanted, items))
        return None if tree is None or tree.damaged() else (tree, is_file)

    def _goal(self, wanted: Wanted, items: Sequence[Item]) -> Path:
        content = cache.content_of(items, wanted.unpack)
        return self._folder / f"{cache.place_of(wanted.uri or wanted.source)}-{content}"

    def _provide(self, source: Source) -> CachedInput:
        wanted = source.wanted
        items, is_file = source.items()
        goal = self._goal(wanted, items)
        tree, moved = self._held(goal), 0
        if tree is None or tree.damaged():
            with cache.alone(goal, lambda: self._beat(wanted, waiting=True)):
                tree = self._held(goal)
                if tree is None:
                    tree, moved = self._make(source, items, goal)
                    self._held(goal)
                elif names := tree.damaged():
                    tree, moved = self._mend(source, items, tree, names)
                    self._held(goal)
        return _provided(wanted, tree, is_file, moved)

    def _held(self, goal: Path) -> Tree | None:
        """The tree, if it is there; nobody takes it away then."""
        file = cache.use(goal)
        if file is None:
            return None
        tree = cache.read(goal)
        if tree is None:  # who holds what nobody can read keeps it from being made anew
            os.close(file)
            return None
        self._stack.callback(os.close, file)
        return tree

    def _make(self, source: Source, items: Sequence[Item], goal: Path) -> tuple[Tree, int]:
        beside = cache.begin(goal, items)
        size = sum(item.size for item in items)
        there = sum(file.stat().st_blocks * 512 for file in beside.rglob("*") if file.is_file())
        place = goal.name.partition("-")[0]
        cache.make_room(self._folder, max(0, size - there), self._limit, place)
        crcs, moved = self._fetch(source, items, beside)
        files = [(item.name, crcs[item.name], item.tag) for item in items]
        if source.wanted.unpack:
            files = self._unpack(source, items, beside)
        return cache.finish(goal, beside, files), moved

    def _mend(
        self, source: Source, items: Sequence[Item], tree: Tree, names: Sequence[str]
    ) -> tuple[Tree, int]:
        """Fetch anew what somebody has changed. What was unpacked is made anew as a whole."""
        if source.wanted.unpack:
            self._stack.close()
            if cache.let_go(tree.folder):
                return self._make(source, items, tree.folder)
            raise AllranksError(
                f"{len(names)} files of the cache were changed, and another job is using them",
                where=str(tree.folder),
                hint="wait for its end: then they are unpacked again",
            )
        beside = tree.folder.with_suffix(".part")
        cache.remove(beside)
        (beside / cache.DATA).mkdir(parents=True)
        wanted = [item for item in items if item.name in set(names)]
        crcs, moved = self._fetch(source, wanted, beside)
        return cache.mend(tree, beside, names, crcs), moved

    def _fetch(
        self, source: Source, items: Sequence[Item], beside: Path
    ) -> tuple[dict[str, int], int]:
        total, done, fetched = sum(item.size for item in items), 0, 0

        def report(count: int, moved: bool) -> None:
            nonlocal done, fetched
            done, fetched = done + count, fetched + (count if moved else 0)
            # What a cut connection had brought is brought again.
            self._beat(source.wanted, done=min(done, total), total=total)

        try:
            crcs = source.fetch(items, beside / cache.DATA, beside / "journal", report)
            return crcs, fetched
        except OSError as error:
            if error.errno is None or isinstance(error, FileNotFoundError):
                raise source.explained(error) from None
            cache.remove(beside)  # it is no use, and takes the room of others
            kind = Passing if is_passing(error) else AllranksError
            raise kind(
                f"the input {source.wanted.name} cannot be kept: {error.strerror}",
                where=str(self._folder),
                hint="make room there, or give the compute another folder: --cache PATH",
            ) from None

    def _unpack(
        self, source: Source, items: Sequence[Item], beside: Path
    ) -> list[tuple[str, int, str]]:
        """What is in the archives, in the place of them."""
        from allranks.agent.archives.unpack import is_archive, stem, unpack  # lazy: few inputs are

        packed = beside / cache.PACKED
        (beside / cache.DATA).rename(packed)
        data = beside / cache.DATA
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
                    f"two things of the input {source.wanted.name} would be {stem(item.name)!r}",
                    where=without_credentials(source.wanted.uri or source.wanted.source),
                    hint="an archive becomes a folder of its name: rename one of the two",
                )
            pairs.append((packed / item.name, goal))
        if not pairs:
            raise AllranksError(
                f"there is no archive in the input {source.wanted.name}",
                where=source.wanted.uri or source.wanted.source,
                hint="archives are .tar, .tar.gz, .tar.zst, .zip and the like; or leave out unpack",
            )
        size = sum((packed / item.name).stat().st_size for item in items if is_archive(item.name))
        # What comes of it nobody knows yet; it is a few times the size, most of the time.
        with suppress(AllranksError):
            cache.make_room(self._folder, size * _USUAL, self._limit, beside.name.partition("-")[0])
        room = cache.make_room(self._folder, 0, self._limit, "")
        limit = min(room, max(size * _GROWTH, _ALWAYS_FINE))
        try:
            unpack(pairs, limit, lambda n, _: self._beat(source.wanted, unpacked=n, of=len(pairs)))
        except AllranksError as error:
            cache.remove(beside)
            # Where it came from: here it is gone by now.
            name = os.path.relpath(error.where, packed) if error.where else ""
            base = without_credentials(source.wanted.uri or source.wanted.source)
            place = base if len(items) == 1 else f"{base}/{name}"
            raise AllranksError(error.message, where=place, hint=error.hint) from None
        except BaseException:
            cache.remove(beside)
            raise
        cache.remove(packed)
        found = []
        for folder, _, names in os.walk(data):
            below = os.path.relpath(folder, data)
            found += [(os.path.normpath(f"{below}/{name}"), 0, "") for name in names]
        return [each for each in sorted(found) if not os.path.islink(data / each[0])]

    def _beat(self, wanted: Wanted, **how: Any) -> None:
        now = time.monotonic()
        if now - self._told > _BEAT:
            self._told = now
            self._say({"input": wanted.name, "seconds": now - self._began, **how})


def there(asked: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the mover would tell of all inputs, if none has to be moved; empty otherwise."""
    several = [Wanted.load(each) for each in asked["inputs"]]
    with InputCache(Path(asked["cache"]), asked["limit"], lambda told: None) as provider:
        found = [provider.there(each) for each in several]
        if None in found:
            return []
        # Only now are links made of them.
        return [
            {"provided": wanted.name, **_provided(wanted, *one, 0)._asdict()}
            for wanted, one in zip(several, found, strict=True)
            if one is not None
        ]


def _provided(wanted: Wanted, tree: Tree, is_file: bool, moved: int) -> CachedInput:
    data = tree.data
    if wanted.copy:
        data = _linked(tree, Path(wanted.copy))
    path = data / tree.files[0][0] if is_file and not wanted.unpack else data
    return CachedInput(str(path), str(tree.folder), len(tree.files), tree.size, moved)


def _linked(tree: Tree, goal: Path) -> Path:
    """A folder of the job's own with the same files: it may add to it and take away."""
    shutil.rmtree(goal, ignore_errors=True)
    goal.mkdir(parents=True)
    for each in {os.path.dirname(row[0]) for row in tree.files} - {""}:
        (goal / each).mkdir(parents=True, exist_ok=True)
    data, to, link = f"{tree.data}/", f"{goal}/", os.link
    try:
        for row in tree.files:
            link(data + row[0], to + row[0])
        for path in _links(tree.data):
            os.symlink(os.readlink(path), to + os.path.relpath(path, tree.data))
    except OSError as error:
        if error.errno not in (errno.EXDEV, errno.EMLINK, errno.EPERM):
            raise
        # On another disk, or more links than a file may have.
        shutil.rmtree(goal)
        shutil.copytree(tree.data, goal, symlinks=True)
        for folder, _, _ in os.walk(goal):
            os.chmod(folder, 0o755)
    return goal


def _links(folder: Path) -> Iterator[str]:
    """Of what was in archives: nothing else here is one."""
    for each, folders, files in os.walk(folder):
        yield from (path for n in (*folders, *files) if os.path.islink(path := f"{each}/{n}"))
