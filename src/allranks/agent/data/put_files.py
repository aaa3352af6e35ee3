"""Put an upload into an object store: its files, and last its manifest, which says that all are
there.

``FOLDER/DIGEST/NAME`` is the data and ``FOLDER/DIGEST.json`` the manifest. The path names the
content, so an object of the right size is complete and not sent again. Each home has a folder of
its own, so that it knows all that uses what is in it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import obstore

from allranks.agent.data import object_stores
from allranks.agent.data.download import run_concurrently
from allranks.agent.data.file_entry import Changed
from allranks.agent.data.upload import Writer
from allranks.core.data import addresses
from allranks.core.data.addresses import Account, Address
from allranks.core.data.upload_manifest import File, Manifest
from allranks.errors import Passing, UsageError

_PART, _CONCURRENT, _ATTEMPTS, _ROUNDS = 8 << 20, 8, 6, 3


class Content(NamedTuple):
    """A file of this disk, and its path below the upload."""

    path: str
    file: str
    size: int
    sha256: str


def contents(manifest: Manifest, file: Callable[[File], str]) -> list[Content]:
    """What a store gets of an upload. ``file``: where a file of it is on this disk."""
    name = manifest.name
    return [
        Content(f"{name}/{item.path}" if item.path else name, file(item), item.size, item.sha256)
        for item in manifest.stored()[0]
    ]


class StoredUpload:
    """The upload ``digest`` in a ``folder`` of a datastore. All raise AllranksError."""

    def __init__(self, account: Account, folder: Address, digest: str, datastore: str) -> None:
        self._place = addresses.within(Address(account.store, folder.key), digest)
        self._datastore = datastore
        self._opened = object_stores.open_store(account, self._place)

    def manifest(self) -> bytes | None:
        """None if the upload is not complete."""
        with self._explained():
            try:
                return bytes(obstore.get(self._opened, f"{self._place.key}.json").bytes())
            except FileNotFoundError:
                return None

    def put(
        self,
        contents: Sequence[Content],
        manifest: bytes,
        report: Callable[[int, int], None] = lambda done, total: None,
        seconds: float = float("inf"),
        announce: Callable[[], object] = lambda: None,
    ) -> int:
        """Put what is missing; returns the bytes that still are, because no file is begun after
        ``seconds``. ``report`` receives the bytes put now and their total; ``announce`` makes the
        server keep what is there, and is called before each listing. Raises Changed and OSError for
        files of this disk, and UsageError for names that no store takes."""
        for content in contents:
            if not content.path.isprintable():
                hint = "use letters, digits and punctuation"
                raise UsageError(f"stores do not allow the name {content.path!r}", hint=hint)
        with self._explained():
            total, done, left, end = 0, 0, 0, time.monotonic() + seconds
            unlisted: dict[str, int] = {}

            def count(size: int) -> None:
                nonlocal done
                done += size
                report(done, total)

            async def one(item: Content) -> int:
                nonlocal left
                if time.monotonic() < end:
                    await self._put(item, count)
                    left -= 1
                return 0

            # What was there at first may be gone when the last file has been put.
            for _ in range(_ROUNDS):
                announce()
                missing = self._missing(contents, unlisted)
                if not missing:
                    obstore.put(self._opened, f"{self._place.key}.json", manifest)
                    return 0
                left, total = len(missing), total + sum(item.size for item in missing)
                missing.sort(key=lambda item: -item.size)
                asyncio.run(run_concurrently(missing, one, _CONCURRENT))
                if left:
                    return max(total - done, 1)
                unlisted = {self._key(item): item.size for item in contents}
            name = missing[0].path
            hint = "see who else removes objects there, and upload again"
            where = str(self._place)
            raise Passing(f"{name} is not in the store after it was put", where=where, hint=hint)

    def has(self, contents: Sequence[Content], manifest: bytes) -> bool:
        """Whether all of a complete upload is still there; then it counts as used now."""
        with self._explained():
            if self._missing(contents, {self._key(item): item.size for item in contents}):
                return False
            obstore.put(self._opened, f"{self._place.key}.json", manifest)
            return True

    def _missing(self, contents: Sequence[Content], unlisted: Mapping[str, int]) -> list[Content]:
        """``unlisted``: the sizes to assume where the credentials do not allow a listing."""
        there = unlisted
        try:
            objects = object_stores.listing(self._opened, self._place.key)
            there = {item.key: item.size for item in objects}
        except (OSError, object_stores.STORE_ERRORS) as error:
            if not object_stores.may_not_list(error):
                raise
        return [item for item in contents if there.get(self._key(item)) != item.size]

    def _key(self, item: Content) -> str:
        return f"{self._place.key}/{item.path}"

    async def _put(self, item: Content, count: Callable[[int], None]) -> None:
        for number in range(_ATTEMPTS):
            sent = 0

            def counted(size: int) -> None:
                nonlocal sent
                sent += size
                count(size)

            try:
                await self._put_once(item, counted)
                return
            except object_stores.RETRYABLE as error:
                if number == _ATTEMPTS - 1 or object_stores.is_final(error):
                    raise
                count(-sent)
                await asyncio.sleep(0.5 * 2**number)

    async def _put_once(self, item: Content, count: Callable[[int], None]) -> None:
        digest = hashlib.sha256()
        with open(item.file, "rb") as file:
            if item.size <= _PART:
                data = file.read(_PART + 1)
                if hashlib.sha256(data).hexdigest() != item.sha256:
                    raise Changed(item.file)
                await obstore.put_async(self._opened, self._key(item), data)
                count(len(data))
                return
            async with Writer(self._opened, self._key(item), item.size) as writer:
                while piece := await asyncio.to_thread(file.read, _PART):
                    digest.update(piece)
                    await writer.write(piece)
                    count(len(piece))
                if digest.hexdigest() != item.sha256:
                    raise Changed(item.file)  # the object does not appear

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except object_stores.STORE_ERRORS as error:
            raise object_stores.explain(error, self._place, self._datastore) from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise object_stores.explain(error, self._place, self._datastore) from None
