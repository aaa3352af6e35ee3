"""Download many files from a store to a folder in parallel, large ones in parts.

A journal beside the folder records each complete file and part with its checksum, so that a killed
download resumes. Only the downloading process uses the folder before it is complete.
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

from allranks.agent.data import object_stores
from allranks.agent.data.file_entry import Changed, FileEntry, Report

if TYPE_CHECKING:
    from allranks.agent.data.object_stores import Opened

# Size in bytes of the parts of large files that the journal records, the most parts in one request,
# and how many requests for ranges and for whole files run at once.
PART, _PARTS_PER_RANGE, _CONCURRENT_RANGES, _CONCURRENT_FILES = 8 << 20, 8, 8, 16
_CHUNK_SIZE = 1 << 20
# Attempts for each request, and the first delay between them.
_ATTEMPTS, _RETRY_SECONDS = 6, 0.5

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def fetch(
    opened: Opened, items: Sequence[FileEntry], folder: Path, journal: Path, report: Report
) -> dict[str, int]:
    """Download all files to ``folder``. Returns their checksums by name.

    Raises Changed, OSError, and the store's exceptions once retries are used up.
    """
    with Journal(journal) as opened_journal:
        return asyncio.run(_Download(opened, folder, opened_journal, report).all(items))


class Journal:
    """Complete files, and complete parts of unfinished files; one JSON line each."""

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
                continue  # a last line cut off by a kill
            if start is None:
                self.files[name] = (size, tag, crc)
            else:
                self.parts.setdefault((name, tag), {})[start] = crc
        self._to = self._path.open("a")
        return self

    def __exit__(self, *_: object) -> None:
        assert self._to is not None
        self._to.close()

    def record(self, item: FileEntry, crc: int, start: int | None = None) -> None:
        assert self._to is not None
        self._to.write(json.dumps([item.name, item.tag, item.size, start, crc]) + "\n")
        self._to.flush()


class _Download:
    def __init__(self, opened: Opened, folder: Path, journal: Journal, report: Report) -> None:
        self._opened, self._folder, self._journal = opened, folder, journal
        self._report = report
        # False once a tag that looks like an MD5 is not one, as in stores that encrypt.
        self._tags_are_hashes = True

    async def all(self, items: Sequence[FileEntry]) -> dict[str, int]:
        for folder in {os.path.dirname(item.name) for item in items}:
            (self._folder / folder).mkdir(parents=True, exist_ok=True)
        crcs: dict[str, int] = {}
        small: list[FileEntry] = []
        large: list[FileEntry] = []
        for item in items:
            crc = self._journaled_crc(item)
            if crc is not None:
                crcs[item.name] = crc
                self._report(item.size, False)
            else:
                (small if item.size <= PART else large).append(item)
        for item in large:
            crcs[item.name] = await self._download_large(item)
        small_crcs = await run_concurrently(small, self._download_small, _CONCURRENT_FILES)
        crcs |= zip((item.name for item in small), small_crcs, strict=True)
        return crcs

    def _journaled_crc(self, item: FileEntry) -> int | None:
        """The checksum of a file that was downloaded before, or None."""
        size, tag, crc = self._journal.files.get(item.name, (None, None, 0))
        if (size, tag) != (item.size, item.tag):
            return None
        try:
            actual = (self._folder / item.name).stat().st_size
        except OSError:
            return None
        return crc if actual == size else None

    async def _download_small(self, item: FileEntry) -> int:
        """Download a file with one request. Returns its checksum."""
        if not item.size:
            data: memoryview = memoryview(b"")
        else:
            data = await self._retry(lambda: self._get(item))
            if self._tags_are_hashes and object_stores.HASH.fullmatch(item.tag):
                data = await self._verify_tag(item, data)
        path = self._folder / item.name
        # Never overwrite in place: older cache entries may share the existing file.
        path.unlink(missing_ok=True)
        with open(path, "xb") as file:
            file.write(data)
        self._report(item.size, True)
        return self._complete(item, path, zlib.crc32(data))

    async def _verify_tag(self, item: FileEntry, data: memoryview) -> memoryview:
        """Return content that matches the MD5 in the tag. Content that differs from the tag but is
        the same twice shows that the tag is not an MD5."""
        for _ in range(2):
            if hashlib.md5(data, usedforsecurity=False).hexdigest() == item.tag.strip('"'):
                return data
            before, data = data, await self._retry(lambda: self._get(item))
            if before == data:
                self._tags_are_hashes = False
                return data
        raise Changed(item.name)

    async def _download_large(self, item: FileEntry) -> int:
        """Download a file in parts, except those that the journal has and the disk still holds."""
        path = self._folder / item.name
        recorded = self._journal.parts.get((item.name, item.tag), {})
        if not recorded:
            path.unlink(missing_ok=True)  # never overwrite in place, as above
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            os.ftruncate(file, item.size)
            crcs = {}
            for start, crc in recorded.items():
                size = min(PART, item.size - start)
                if await asyncio.to_thread(_checksum, file, start, size) == crc:
                    crcs[start] = crc
                    self._report(size, False)
            missing = [at for at in range(0, item.size, PART) if at not in crcs]

            async def download(span: tuple[int, int]) -> int:
                async def remaining() -> None:
                    at = next((at for at in range(*span, PART) if at not in crcs), span[1])
                    await self._download_range(item, file, (at, span[1]), crcs)

                await self._retry(remaining, lambda: sum(at in crcs for at in range(*span, PART)))
                return 0

            ranges = _ranges(missing, item.size)
            try:
                await run_concurrently(ranges, download, _CONCURRENT_RANGES)
            except object_stores.NO_RANGES:
                return await self._download_whole(item, path)
        finally:
            os.close(file)
        combined = zlib.crc32(json.dumps([crcs[start] for start in sorted(crcs)]).encode())
        return self._complete(item, path, combined)

    async def _download_range(
        self, item: FileEntry, file: int, span: tuple[int, int], crcs: dict[int, int]
    ) -> None:
        """Download the bytes of ``span``, and add the checksum of each complete part to
        ``crcs``."""
        at, end = span
        crc, start = 0, at
        if at == end:
            return
        answer = await self._request(item, span)
        async for piece in answer.stream(_CHUNK_SIZE):
            data = memoryview(piece)
            while data and at < end:
                chunk = data[: min(start + PART, end) - at]
                crc = await asyncio.to_thread(_write, file, chunk, at, crc)
                at = at + len(chunk)
                data = data[len(chunk) :]
                self._report(len(chunk), True)
                if at == min(start + PART, end):
                    crcs[start] = crc
                    self._journal.record(item, crc, start)
                    crc, start = 0, at
        if at != end:
            raise Changed(item.name)

    async def _download_whole(self, item: FileEntry, path: Path) -> int:
        """Download a large file from a site that does not support range requests."""

        async def download() -> int:
            answer = await self._request(item, None)
            crc, size = 0, 0
            with open(path, "wb") as file:
                async for piece in answer.stream(_CHUNK_SIZE):
                    data = memoryview(piece)
                    file.write(data)
                    crc = zlib.crc32(data, crc)
                    size = size + len(data)
                    self._report(len(data), True)
            if size != item.size:
                raise Changed(item.name)
            return crc

        return self._complete(item, path, await self._retry(download))

    def _complete(self, item: FileEntry, path: Path, crc: int) -> int:
        os.utime(path, (item.mtime, item.mtime))
        # Record it before it becomes read-only, so that a killed download can resume.
        self._journal.record(item, crc)
        os.chmod(path, 0o444)
        return crc

    async def _get(self, item: FileEntry) -> memoryview:
        data = memoryview(await (await self._request(item, None)).bytes_async())
        if len(data) != item.size:
            raise Changed(item.name)
        return data

    async def _request(self, item: FileEntry, span: tuple[int, int] | None) -> obstore.GetResult:
        return await obstore.get_async(
            self._opened, item.key, options=object_stores.get_options(item.tag, span)
        )

    async def _retry(
        self, request: Callable[[], Awaitable[_Result]], progress: Callable[[], int] = lambda: 0
    ) -> _Result:
        """Retry a request with back-off; attempts start over whenever ``progress`` has grown."""
        number, before = 0, progress()
        while True:
            try:
                return await request()
            except object_stores.CHANGED as error:
                raise Changed(str(error)) from None
            except object_stores.RETRYABLE as error:
                if (now := progress()) > before:
                    number, before = 0, now
                number += 1
                if number == _ATTEMPTS or object_stores.is_final(error):
                    raise
                # Jitter: many nodes may retry at the same time.
                await asyncio.sleep(_RETRY_SECONDS * 2**number * random.uniform(0.25, 0.75))


def _ranges(missing: Sequence[int], size: int) -> list[tuple[int, int]]:
    """Join adjacent parts, given by their start, to byte ranges for one request each: as few as
    possible while enough remain to run in parallel."""
    most = min(_PARTS_PER_RANGE, max(1, -(-size // PART // _CONCURRENT_RANGES)))
    ranges: list[tuple[int, int]] = []
    for start in missing:
        end = min(start + PART, size)
        if ranges and ranges[-1][1] == start and start - ranges[-1][0] < most * PART:
            ranges[-1] = (ranges[-1][0], end)
        else:
            ranges.append((start, end))
    return ranges


async def run_concurrently(
    items: Sequence[_Item], work: Callable[[_Item], Awaitable[int]], limit: int
) -> list[int]:
    """Results of ``work`` in order, ``limit`` at a time; the first failure cancels the others."""
    results = [0] * len(items)
    pending = iter(enumerate(items))

    async def worker() -> None:
        for number, item in pending:
            results[number] = await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limit, len(items))):
                group.create_task(worker())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results


def _write(file: int, data: memoryview, start: int, crc: int) -> int:
    """Write at an offset. Returns the checksum, continued from ``crc``."""
    crc, at = zlib.crc32(data, crc), 0
    while at < len(data):
        at += os.pwrite(file, data[at:], start + at)
    return crc


def _checksum(file: int, start: int, size: int) -> int:
    return zlib.crc32(os.pread(file, size, start))
