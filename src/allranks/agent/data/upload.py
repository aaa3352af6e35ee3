"""What a job writes, brought elsewhere: whole files only, while it runs and at its end.

A file is whole when nobody has it open for writing and it has not changed since the last look; it
is looked at again after it was read, and only then becomes an object of the store, all at once.
What was brought is kept in a manifest, with sizes and checksums.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import obstore

from allranks.agent.data import object_stores
from allranks.agent.data.complete_files import Look, is_written, look_of
from allranks.errors import AllranksError
from allranks.plan.data import addresses
from allranks.plan.data.addresses import Account, Address

_PART, _SEVERAL = 8 << 20, 8
# S3 takes no more than 10,000 of an object.
_MOST_PARTS = 9000
# How often a file may change under our eyes at the very end, and how often a store is asked again.
_TRIES, _LONGEST = 9, 20.0


class Output(NamedTuple):
    """An output of this node: all below ``folder`` goes below ``uri``; where ``only`` names a file
    of it, that one becomes it. ``live``: while the job runs, too."""

    name: str
    uri: str
    account: Account
    datastore: str
    folder: str
    only: str
    live: bool


class Uploaded(NamedTuple):
    """A file that is there: how it looked, its checksum, what the store calls its content."""

    look: Look
    crc: int
    tag: str
    at: float


class Torn(Exception):
    """The file was written to while it was read."""


class Uploader:
    """Brings one output; ``manifest`` is where it keeps what it brought."""

    def __init__(self, output: Output, manifest: Path) -> None:
        self.output, self._manifest = output, manifest
        place = addresses.address(output.uri)
        self._place = Address(output.account.store, place.key)
        self._opened = object_stores.open_store(output.account, place)
        self._there: dict[str, Uploaded] = _kept(manifest)
        self._before: dict[str, Look] = {}

    @property
    def files(self) -> int:
        return len(self._there)

    @property
    def size(self) -> int:
        return sum(each.look.size for each in self._there.values())

    def ask(self) -> None:
        """Raise AllranksError if the store does not answer, or says already that nothing can be
        brought to it. Whether one may write there it cannot be asked."""
        try:
            next(object_stores.listing(self._opened, self._place.key), None)
        except (OSError, object_stores.SAID) as error:
            if not object_stores.may_not_list(error):
                raise object_stores.explained(error, self._place, self.output.datastore) from None

    def look(self, end: bool, report: Callable[[int, int], None]) -> None:
        """Bring what is whole; at the ``end`` everything there is. ``report`` hears bytes done, and
        of how many. Raises AllranksError."""
        try:
            now = self._seen()
        except OSError as error:
            # What cannot be seen has not been taken away.
            if end:
                raise self._unreadable(error) from None
            return
        changed = {name: look for name, look in now.items() if self._differs(name, look)}
        ready = changed if end else {n: k for n, k in changed.items() if self._before.get(n) == k}
        self._before = now
        gone = [name for name in self._there if name not in now]
        if not ready and not gone:
            return
        try:
            asyncio.run(self._bring(ready, gone, end, report))
        except object_stores.SAID as error:
            raise object_stores.explained(error, self._place, self.output.datastore) from None
        except OSError as error:
            if error.errno is None:
                raise object_stores.explained(error, self._place, self.output.datastore) from None
            raise self._unreadable(error) from None
        finally:
            self._keep()

    def _unreadable(self, error: OSError) -> AllranksError:
        return AllranksError(
            f"the output {self.output.name} cannot be read: {error.strerror}",
            where=str(error.filename or self.output.folder),
            hint="the agent's user has to be able to: look at who wrote it, and its mode",
        )

    def _differs(self, name: str, look: Look) -> bool:
        there = self._there.get(name)
        return there is None or there.look != look

    def _seen(self) -> dict[str, Look]:
        """Every file, and how it looks. Raises OSError where not all can be seen."""
        found = {}
        for folder, _, names in os.walk(self.output.folder, onerror=_raise):
            for each in names:
                path = os.path.join(folder, each)
                name = os.path.relpath(path, self.output.folder)
                if self.output.only not in ("", name):
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if os.path.isfile(path):
                        found[name] = look_of(os.stat(path))
        return found

    async def _bring(
        self,
        ready: Mapping[str, Look],
        gone: Sequence[str],
        end: bool,
        report: Callable[[int, int], None],
    ) -> None:
        total, done = sum(look.size for look in ready.values()), 0
        left = iter(sorted(ready))
        failed: list[Exception] = []

        async def several() -> None:
            nonlocal done
            for name in left:
                try:
                    brought = await self._whole(name, end)
                except Exception as error:
                    failed.append(error)  # the others are brought all the same
                    continue
                if brought is not None:
                    self._there[name] = brought
                done += ready[name].size
                report(done, total)

        await asyncio.gather(*(several() for _ in range(min(_SEVERAL, len(ready)))))
        for name in gone:
            with contextlib.suppress(FileNotFoundError):  # another node has taken it away, too
                await obstore.delete_async(self._opened, self._key(name))
            del self._there[name]
        if failed:
            raise failed[0]

    async def _whole(self, name: str, end: bool) -> Uploaded | None:
        """Bring a file; None when it is not whole, and may be the next time."""
        if not name.isprintable():
            raise AllranksError(
                f"the file {name!r} of the output {self.output.name} has a name no store can have",
                where=self.output.folder,
                hint="give it one of letters, digits and the like",
            )
        for number in range(_TRIES):
            try:
                return await self._one(name)
            except FileNotFoundError:
                if (Path(self.output.folder) / name).exists():
                    raise
                return None  # of a store that has lost its bucket that would not be true
            except Torn:
                if not end:
                    return None
                await asyncio.sleep(0.1 * 1.5**number)
            except object_stores.PASSING as error:
                if number == _TRIES - 1 or not end or object_stores.is_final(error):
                    raise  # the next look is soon enough
                await asyncio.sleep(min(_LONGEST, 0.5 * 2**number))
        raise AllranksError(
            f"the file {name!r} of the output {self.output.name} is still being written to",
            where=self.output.folder,
            hint="end what writes there before the command ends",
        )

    async def _one(self, name: str) -> Uploaded:
        path, key = os.path.join(self.output.folder, name), self._key(name)
        with open(path, "rb") as file:
            before = look_of(os.fstat(file.fileno()))
            if is_written(file.fileno()):
                raise Torn
            if before.size <= _PART:
                data = file.read()
                _hold_to(before, file.fileno())
                put = await obstore.put_async(self._opened, key, data)
                tag = put["e_tag"] or ""
                return Uploaded(before, zlib.crc32(data), tag, time.time())
            crc = 0
            async with _Writer(self._opened, key, before.size) as writer:
                while piece := await asyncio.to_thread(file.read, _PART):
                    crc = zlib.crc32(piece, crc)
                    await writer.write(piece)
                _hold_to(before, file.fileno())
        return Uploaded(before, crc, "", time.time())

    def _key(self, name: str) -> str:
        if self.output.only:
            return self._place.key
        return f"{self._place.key}/{name}" if self._place.key else name

    def _keep(self) -> None:
        files = [
            {
                "path": name,
                "size": each.look.size,
                "crc32": f"{each.crc:08x}",
                "etag": each.tag,
                "at": each.at,
                "look": each.look,
            }
            for name, each in sorted(self._there.items())
        ]
        told = {"output": self.output.name, "uri": self.output.uri, "files": files}
        self._manifest.parent.mkdir(parents=True, exist_ok=True)
        beside = self._manifest.with_suffix(".new")
        beside.write_text(json.dumps(told, indent=1))
        beside.replace(self._manifest)


class _Writer:
    """An object in parts, that is there once the block ends well, and never otherwise."""

    def __init__(self, opened: object_stores.Opened, key: str, size: int) -> None:
        part = max(_PART, -(-size // _MOST_PARTS))
        self._writer = obstore.open_writer_async(opened, key, buffer_size=part)

    async def __aenter__(self) -> Any:
        return self._writer

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self._writer.close()


def _kept(manifest: Path) -> dict[str, Uploaded]:
    """What one before us has brought. Files of another attempt look different."""
    try:
        files = json.loads(manifest.read_text())["files"]
    except (OSError, ValueError, KeyError):
        return {}
    return {
        each["path"]: Uploaded(
            Look(*each["look"]), int(each["crc32"], 16), each["etag"], each["at"]
        )
        for each in files
    }


def _raise(error: OSError) -> None:
    raise error


def _hold_to(before: Look, file: int) -> None:
    """Raise Torn when it is not what it was."""
    if look_of(os.fstat(file)) != before or is_written(file):
        raise Torn
