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
import zlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import obstore

from allranks.agent.data.file_entry import Changed, Item, Report
from allranks.agent.data.object_stores import CHANGED, HASH, NO_RANGES, PASSING, asking, is_final

if TYPE_CHECKING:
    from allranks.agent.data.object_stores import Opened

# Of large files: what is noted as there, and lost to who is killed while it is under way; how many
# of those are asked for at once, at most; how many such spans are, and how many whole files.
PART, _RUN, _RUNS, _FILES = 8 << 20, 8, 8, 16
_PIECE = 1 << 20
# How often a part is asked for again, and how long the first wait is in seconds.
_TRIES, _PAUSE = 6, 0.5

_Unit = TypeVar("_Unit")
_Got = TypeVar("_Got")


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
            data = await self._again(lambda: self._get(item))
            if self._tags_are_hashes and HASH.fullmatch(item.tag):
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
            before, data = data, await self._again(lambda: self._get(item))
            if before == data:
                self._tags_are_hashes = False
                return data
        raise Changed(item.name)

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
            runs = _runs([at for at in range(0, item.size, PART) if at not in crcs], item.size)

            async def run(span: tuple[int, int]) -> int:
                async def rest() -> None:
                    at = next((at for at in range(*span, PART) if at not in crcs), span[1])
                    await self._into(item, file, (at, span[1]), crcs)

                await self._again(rest, lambda: sum(at in crcs for at in range(*span, PART)))
                return 0

            try:
                await _each(runs, run, _RUNS)
            except NO_RANGES:
                return await self._streamed(item, path)
        finally:
            os.close(file)
        whole = zlib.crc32(json.dumps([crcs[each] for each in sorted(crcs)]).encode())
        return self._whole(item, path, whole, told=True)

    async def _into(
        self, item: Item, file: int, span: tuple[int, int], crcs: dict[int, int]
    ) -> None:
        """The bytes of ``span``, part by part as they come; of each part its checksum."""
        at, end = span
        crc, start = 0, at
        if at == end:
            return
        answer = await self._ask(item, span)
        async for piece in answer.stream(_PIECE):
            data = memoryview(piece)
            while data and at < end:
                here = data[: min(start + PART, end) - at]
                crc = await asyncio.to_thread(_write, file, here, at, crc)
                at, data = at + len(here), data[len(here) :]
                self._report(len(here), True)
                if at == min(start + PART, end):
                    crcs[start] = crc
                    self._journal.note(item, crc, start)
                    crc, start = 0, at
        if at != end:
            raise Changed(item.name)

    async def _streamed(self, item: Item, path: Path) -> int:
        """A file from a site that does not give parts."""

        async def whole() -> int:
            answer = await self._ask(item, None)
            crc, size = 0, 0
            with open(path, "wb") as file:
                async for piece in answer.stream(_PIECE):
                    data = memoryview(piece)
                    file.write(data)
                    crc, size = zlib.crc32(data, crc), size + len(data)
                    self._report(len(data), True)
            if size != item.size:
                raise Changed(item.name)
            return crc

        return self._whole(item, path, await self._again(whole), told=True)

    def _whole(self, item: Item, path: Path, crc: int, told: bool = False) -> int:
        """Make it what it is to be, and note it."""
        os.utime(path, (item.mtime, item.mtime))
        # Before it is read-only: who is killed here goes on with it.
        self._journal.note(item, crc)
        os.chmod(path, 0o444)
        if not told:
            self._report(item.size, True)
        return crc

    async def _get(self, item: Item) -> memoryview:
        data = memoryview(await (await self._ask(item, None)).bytes_async())
        if len(data) != item.size:
            raise Changed(item.name)
        return data

    async def _ask(self, item: Item, span: tuple[int, int] | None) -> obstore.GetResult:
        return await obstore.get_async(self._opened, item.key, options=asking(item.tag, span))

    async def _again(
        self, ask: Callable[[], Awaitable[_Got]], so_far: Callable[[], int] = lambda: 0
    ) -> _Got:
        """The answer, asked for as often as it may take, and more often while ``so_far`` grows."""
        number, before = 0, so_far()
        while True:
            try:
                return await ask()
            except CHANGED as error:
                raise Changed(str(error)) from None
            except PASSING as error:
                if (now := so_far()) > before:
                    number, before = 0, now
                number += 1
                if number == _TRIES or is_final(error):
                    raise
                # Not all at the same moment: there may be many nodes.
                await asyncio.sleep(_PAUSE * 2**number * random.uniform(0.25, 0.75))


def _runs(missing: Sequence[int], size: int) -> list[tuple[int, int]]:
    """The parts that begin at ``missing`` as spans of bytes to be asked for at once: few of them,
    but enough that several are under way."""
    most = min(_RUN, max(1, -(-size // PART // _RUNS)))
    found: list[tuple[int, int]] = []
    for start in missing:
        end = min(start + PART, size)
        if found and found[-1][1] == start and start - found[-1][0] < most * PART:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


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


def _write(file: int, data: memoryview, start: int, crc: int) -> int:
    """Write it there; the checksum with what came before it."""
    crc, at = zlib.crc32(data, crc), 0
    while at < len(data):
        at += os.pwrite(file, data[at:], start + at)
    return crc


def _checksum(file: int, start: int, size: int) -> int:
    return zlib.crc32(os.pread(file, size, start))
