"""Upload a job's output files to a store, while it runs and at its end; complete files only.

A file is complete when no process has it open for writing and it has not changed since the last
scan. This is checked again after reading, before the object appears in the store. A manifest lists
what was uploaded, with sizes and checksums.
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

from allranks import folder_trees
from allranks.agent.data import object_stores
from allranks.agent.data.complete_files import Fingerprint, fingerprint, is_open_for_writing
from allranks.core.data import addresses
from allranks.core.data.addresses import Account, Address
from allranks.errors import AllranksError

_PART, _CONCURRENT = 8 << 20, 8
# S3 allows 10,000 parts for an object.
_MOST_PARTS = 9000
# Attempts for a file at the end, and the longest delay between them in seconds.
_ATTEMPTS, _MAX_DELAY = 9, 20.0


class Output(NamedTuple):
    """An output of this node: ``folder`` is uploaded below ``uri``, or its file ``only`` to ``uri``
    itself. ``live``: also while the job runs. ``roots``: links may lead to files below them."""

    name: str
    uri: str
    account: Account
    datastore: str
    folder: str
    only: str
    live: bool
    roots: Sequence[str] = ("/",)


class Uploaded(NamedTuple):
    """An uploaded file: its metadata and CRC-32, the store's tag, and the time of the upload."""

    look: Fingerprint
    crc: int
    tag: str
    at: float


class WrittenMeanwhile(Exception):
    """The file was written to while we read it."""


class Uploader:
    """Uploads one output, and records its files in ``manifest`` in the job's ``record``."""

    def __init__(self, output: Output, manifest: Path, record: Path) -> None:
        self.output, self._manifest, self._record = output, manifest, record
        # Links that lead out of the folders of the job.
        self.left_out: set[str] = set()
        place = addresses.address(output.uri)
        self._address = Address(output.account.store, place.key)
        self._opened = object_stores.open_store(output.account, place)
        self._uploaded: dict[str, Uploaded] = _read_manifest(manifest, record)
        self._last_scan: dict[str, Fingerprint] = {}

    @property
    def files(self) -> int:
        return len(self._uploaded)

    @property
    def size(self) -> int:
        return sum(uploaded.look.size for uploaded in self._uploaded.values())

    def check_access(self) -> None:
        """Raise AllranksError if the store does not answer or refuses the credentials. Write
        permission cannot be checked without writing."""
        try:
            next(object_stores.listing(self._opened, self._address.key), None)
        except (OSError, object_stores.STORE_ERRORS) as error:
            if not object_stores.may_not_list(error):
                raise object_stores.explain(error, self._address, self.output.datastore) from None

    def upload(self, end: bool, report: Callable[[int, int], None]) -> None:
        """Upload complete files, at the ``end`` all files, and delete objects of deleted files.
        ``report`` receives the bytes done and their total. Raises AllranksError."""
        try:
            files = self._scan()
        except OSError as error:
            # An unreadable folder does not mean that its files were deleted.
            if end:
                raise self._unreadable(error) from None
            return
        ready = {
            name: look
            for name, look in files.items()
            if (name not in self._uploaded or self._uploaded[name].look != look)
            and (end or self._last_scan.get(name) == look)
        }
        self._last_scan = files
        deleted = [name for name in self._uploaded if name not in files]
        if not ready and not deleted:
            return
        try:
            asyncio.run(self._upload_all(ready, deleted, end, report))
        except object_stores.STORE_ERRORS as error:
            raise object_stores.explain(error, self._address, self.output.datastore) from None
        except OSError as error:
            if error.errno is None:
                raise object_stores.explain(error, self._address, self.output.datastore) from None
            raise self._unreadable(error) from None
        finally:
            self._write_manifest()

    def _unreadable(self, error: OSError) -> AllranksError:
        return AllranksError(
            f"cannot read the output {self.output.name}: {error.strerror}",
            where=str(error.filename or self.output.folder),
            hint="the agent's user needs read permission: check the file's owner and mode",
        )

    def _scan(self) -> dict[str, Fingerprint]:
        """All files with their metadata. Raises OSError if a folder cannot be read."""
        files = {}
        for folder, _, names in folder_trees.walk(self.output.folder, onerror=_raise):
            for file in names:
                path = os.path.join(folder, file)
                name = os.path.relpath(path, self.output.folder)
                if self.output.only not in ("", name):
                    continue
                if os.path.islink(path) and not folder_trees.resolved(path, self.output.roots):
                    self.left_out.add(name)
                    continue
                with contextlib.suppress(FileNotFoundError):
                    if os.path.isfile(path):
                        files[name] = fingerprint(os.stat(path))
        return files

    async def _upload_all(
        self,
        ready: Mapping[str, Fingerprint],
        deleted: Sequence[str],
        end: bool,
        report: Callable[[int, int], None],
    ) -> None:
        total, done = sum(look.size for look in ready.values()), 0
        pending = iter(sorted(ready))
        errors: list[Exception] = []

        async def worker() -> None:
            nonlocal done
            for name in pending:
                try:
                    uploaded = await self._upload_file(name, end)
                except Exception as error:
                    errors.append(error)  # still upload the others
                    continue
                if uploaded is not None:
                    self._uploaded[name] = uploaded
                done += ready[name].size
                report(done, total)

        await asyncio.gather(*(worker() for _ in range(min(_CONCURRENT, len(ready)))))
        for name in deleted:
            with contextlib.suppress(FileNotFoundError):  # another node may have deleted it
                await obstore.delete_async(self._opened, self._key(name))
            del self._uploaded[name]
        if errors:
            raise errors[0]

    async def _upload_file(self, name: str, end: bool) -> Uploaded | None:
        """Upload a file. Returns None if it is not complete yet, or was deleted."""
        if not name.isprintable():
            raise AllranksError(
                f"stores do not allow the file name {name!r} of the output {self.output.name}",
                where=self.output.folder,
                hint="use letters, digits and punctuation",
            )
        for number in range(_ATTEMPTS):
            try:
                return await self._upload_once(name)
            except FileNotFoundError:
                if (Path(self.output.folder) / name).exists():
                    raise
                return None  # the file was deleted; above, the store's bucket was
            except WrittenMeanwhile:
                if not end:
                    return None
                await asyncio.sleep(0.1 * 1.5**number)
            except object_stores.RETRYABLE as error:
                if number == _ATTEMPTS - 1 or not end or object_stores.is_final(error):
                    raise  # before the end, the next scan tries again
                await asyncio.sleep(min(_MAX_DELAY, 0.5 * 2**number))
        raise AllranksError(
            f"the file {name!r} of the output {self.output.name} is still being written to",
            where=self.output.folder,
            hint="stop all processes that write there before the command ends",
        )

    async def _upload_once(self, name: str) -> Uploaded:
        path = Path(self.output.folder, name)
        key = self._key(name)
        with folder_trees.open_linked(path, self.output.roots) as file:
            before = fingerprint(os.fstat(file.fileno()))
            if is_open_for_writing(file.fileno()):
                raise WrittenMeanwhile
            if before.size <= _PART:
                data = file.read()
                _check_unchanged(before, file.fileno())
                put = await obstore.put_async(self._opened, key, data)
                tag = put["e_tag"] or ""
                return Uploaded(before, zlib.crc32(data), tag, time.time())
            crc = 0
            async with Writer(self._opened, key, before.size) as writer:
                while piece := await asyncio.to_thread(file.read, _PART):
                    crc = zlib.crc32(piece, crc)
                    await writer.write(piece)
                _check_unchanged(before, file.fileno())
        return Uploaded(before, crc, "", time.time())

    def _key(self, name: str) -> str:
        if self.output.only:
            return self._address.key
        return f"{self._address.key}/{name}" if self._address.key else name

    def _write_manifest(self) -> None:
        files = [
            {
                "path": name,
                "size": uploaded.look.size,
                "crc32": f"{uploaded.crc:08x}",
                "etag": uploaded.tag,
                "at": uploaded.at,
                "look": uploaded.look,
            }
            for name, uploaded in sorted(self._uploaded.items())
        ]
        manifest = {"output": self.output.name, "uri": self.output.uri, "files": files}
        with folder_trees.replace_file(self._manifest, self._record) as file:
            file.write(json.dumps(manifest, indent=1).encode())


class Writer:
    """A multipart upload that is completed only if the block raises nothing."""

    def __init__(self, opened: object_stores.Opened, key: str, size: int) -> None:
        part = max(_PART, -(-size // _MOST_PARTS))
        self._writer = obstore.open_writer_async(opened, key, buffer_size=part)

    async def __aenter__(self) -> Any:
        return self._writer

    async def __aexit__(self, kind: object, *_: object) -> None:
        if kind is None:
            await self._writer.close()


def _read_manifest(manifest: Path, record: Path) -> dict[str, Uploaded]:
    """What an earlier mover of this attempt uploaded. The job can write there, too."""
    try:
        with folder_trees.open_file(manifest, below=record) as file:
            files = json.load(file)["files"]
        return {
            row["path"]: Uploaded(
                Fingerprint(*row["look"]), int(row["crc32"], 16), row["etag"], row["at"]
            )
            for row in files
        }
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def _raise(error: OSError) -> None:
    raise error


def _check_unchanged(before: Fingerprint, file: int) -> None:
    """Raise WrittenMeanwhile if the file changed or is open for writing."""
    if fingerprint(os.fstat(file)) != before or is_open_for_writing(file):
        raise WrittenMeanwhile
