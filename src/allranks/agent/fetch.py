"""Many files from a store to a folder: in parallel, large ones in parts, on from where it stopped.

What is whole is noted in a journal beside the folder, with a checksum: whoever is killed here goes
on from that. Nobody but the one who fetches sees the folder before all of it is there.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import re
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, NamedTuple, TypeVar

import obstore

from allranks.agent.objects import CHANGED, NO_RANGES, PASSING

if TYPE_CHECKING:
    from allranks.agent.objects import Opened

# What is asked for at once; how many whole files are, and how many parts: those that are under way
# are lost to who is killed.
PART, _FILES, _PARTS = 8 << 20, 16, 8
# How often a part is asked for again, and how long the first wait is in seconds.
_TRIES, _PAUSE = 6, 0.5
_MD5 = re.compile(r'"?[0-9a-f]{32}"?')

_Unit = TypeVar("_Unit")
# Hears of so many bytes more, and whether they had to be moved.
Report = Callable[[int, bool], None]


class Item(NamedTuple):
    """A file: its name below the folder, its key in the store, its size in bytes, what changes with
    its content, and when that was last changed."""

    name: str
    key: str
    size: int
    tag: str
    mtime: float


class Changed(Exception):
    """The store has another content now than it told at first."""


def fetch(
    opened: Opened, items: Sequence[Item], folder: Path, journal: Path, report: Report
) -> dict[str, int]:
    """Have all of them in ``folder``; their checksums by name.

    Raises Changed, OSError, and what the store raises when it went on doing so.
    """
    with Journal(journal) as noted:
        return asyncio.run(_Fetching(opened, folder, noted, report).all(items))


class Journal:
    """What is whole, line by line: files, and parts of those that are not yet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.files: dict[str, tuple[int, str, int]] = {}
        self.parts: dict[tuple[str, str], dict[int, int]] = {}
        self._to: IO[str] | None = None

    def __enter__(self) -> Journal:
        try:
            lines = self._path.read_text(errors="replace").splitlines()
        except FileNotFoundError:
            lines = []
        for line in lines:
            try:
                name, tag, size, start, crc = json.loads(line)
            except ValueError:
                continue  # the last one, half written
            if start is None:
                self.files[name] = (size, tag, crc)
            else:
                self.parts.setdefault((name, tag), {})[start] = crc
        self._to = self._path.open("a")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._to is not None
        self._to.close()

    def note(self, item: Item, crc: int, start: int | None = None) -> None:
        assert self._to is not None
        self._to.write(json.dumps([item.name, item.tag, item.size, start, crc]) + "\n")
        self._to.flush()


class _Fetching:
    def __init__(self, opened: Opened, folder: Path, journal: Journal, report: Report) -> None:
        self._opened, self._folder, self._journal = opened, folder, journal
        self._report = report
        # Whether a tag that looks like a hash is one: where a store encrypts, it is not.
        self._tags_are_hashes = True

    async def all(self, items: Sequence[Item]) -> dict[str, int]:
        for each in {os.path.dirname(item.name) for item in items}:
            (self._folder / each).mkdir(parents=True, exist_ok=True)
        found: dict[str, int] = {}
        small: list[Item] = []
        large: list[Item] = []
        for item in items:
            crc = self._has(item)
            if crc is not None:
                found[item.name] = crc
                self._report(item.size, False)
            else:
                (small if item.size <= PART else large).append(item)
        for item in large:
            found[item.name] = await self._large(item)
        for item, crc in zip(small, await _each(small, self._small, _FILES), strict=True):
            found[item.name] = crc
        return found

    def _has(self, item: Item) -> int | None:
        """The checksum of a file that was fetched before."""
        size, tag, crc = self._journal.files.get(item.name, (None, None, 0))
        if (size, tag) != (item.size, item.tag):
            return None
        try:
            there = (self._folder / item.name).stat().st_size
        except OSError:
            return None
        return crc if there == size else None

    async def _small(self, item: Item) -> int:
        """A file in one piece."""
        if not item.size:
            data: memoryview = memoryview(b"")
        else:
            data = await self._again(lambda: self._get(item, None))
            if self._tags_are_hashes and _MD5.fullmatch(item.tag):
                data = await self._hashed(item, data)
        path = self._folder / item.name
        # Never into what is there: an older content of that name may be shared with others.
        path.unlink(missing_ok=True)
        with open(path, "xb") as file:
            file.write(data)
        return self._whole(item, path, zlib.crc32(data))

    async def _hashed(self, item: Item, data: memoryview) -> memoryview:
        """The content its tag is the hash of; the content, where a tag turns out to be none."""
        for _ in range(2):
            if hashlib.md5(data, usedforsecurity=False).hexdigest() == item.tag.strip('"'):
                return data
            before, data = data, await self._again(lambda: self._get(item, None))
            if before == data:
                self._tags_are_hashes = False
                return data
        return data

    async def _large(self, item: Item) -> int:
        """A file part by part; those that are noted and still as they were are not asked for."""
        path = self._folder / item.name
        known = self._journal.parts.get((item.name, item.tag), {})
        if not known:
            path.unlink(missing_ok=True)  # as above
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, item.size)
            crcs = {}
            for start, crc in known.items():
                size = min(PART, item.size - start)
                if await asyncio.to_thread(_checksum, file, start, size) == crc:
                    crcs[start] = crc
                    self._report(size, False)
            missing = [start for start in range(0, item.size, PART) if start not in crcs]

            async def part(start: int) -> int:
                end = min(start + PART, item.size)
                data = await self._again(lambda: self._get(item, (start, end)))
                crc = await asyncio.to_thread(_write, file, data, start)
                self._journal.note(item, crc, start)
                self._report(len(data), True)
                return crc

            try:
                got = await _each(missing, part, _PARTS)
            except NO_RANGES:
                return await self._streamed(item, path)
            crcs.update(zip(missing, got, strict=True))
        finally:
            os.close(file)
        whole = zlib.crc32(json.dumps([crcs[each] for each in sorted(crcs)]).encode())
        return self._whole(item, path, whole, told=True)

    async def _streamed(self, item: Item, path: Path) -> int:
        """A file from a site that does not give parts."""
        answer = await obstore.get_async(self._opened, item.key)
        crc, size = 0, 0
        with open(path, "wb") as file:
            async for piece in answer.stream(1 << 20):
                data = memoryview(piece)
                file.write(data)
                crc, size = zlib.crc32(data, crc), size + len(data)
                self._report(len(data), True)
        if size != item.size:
            raise Changed(item.name)
        return self._whole(item, path, crc, told=True)

    def _whole(self, item: Item, path: Path, crc: int, told: bool = False) -> int:
        """Make it what it is to be, and note it."""
        os.chmod(path, 0o444)
        os.utime(path, (item.mtime, item.mtime))
        self._journal.note(item, crc)
        if not told:
            self._report(item.size, True)
        return crc

    async def _get(self, item: Item, span: tuple[int, int] | None) -> memoryview:
        options: obstore.GetOptions = {}
        if item.tag.startswith(('"', "W/")) or _MD5.fullmatch(item.tag):
            options["if_match"] = item.tag
        if span is not None:
            options["range"] = span
        answer = await obstore.get_async(self._opened, item.key, options=options)
        data = memoryview(await answer.bytes_async())
        wanted = item.size if span is None else span[1] - span[0]
        if len(data) != wanted:
            raise Changed(item.name)
        return data

    async def _again(self, ask: Callable[[], Awaitable[memoryview]]) -> memoryview:
        """The answer, asked for as often as it may take."""
        for number in range(_TRIES):
            try:
                return await ask()
            except CHANGED as error:
                raise Changed(str(error)) from None
            except PASSING as error:
                if number == _TRIES - 1 or is_final(error):
                    raise
                # Not all at the same moment: there may be many nodes.
                await asyncio.sleep(_PAUSE * 2**number * random.uniform(0.5, 1.5))
        raise AssertionError("unreachable")


def is_final(error: Exception) -> bool:
    """Whether the store has said no, and will say so again."""
    return re.search(r"status (4(?!08|29)\d\d)|<Code>", str(error)) is not None


async def _each(
    units: Sequence[_Unit], work: Callable[[_Unit], Awaitable[int]], several: int
) -> list[int]:
    """What ``work`` makes of each, ``several`` at a time; the first failure ends the others."""
    found: list[int] = [0] * len(units)
    left = iter(range(len(units)))

    async def one() -> None:
        for number in left:
            found[number] = await work(units[number])

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(several, len(units))):
                group.create_task(one())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return found


def _write(file: int, data: memoryview, start: int) -> int:
    crc, at = zlib.crc32(data), 0
    while at < len(data):
        at += os.pwrite(file, data[at:], start + at)
    return crc


def _checksum(file: int, start: int, size: int) -> int:
    return zlib.crc32(os.pread(file, size, start))
