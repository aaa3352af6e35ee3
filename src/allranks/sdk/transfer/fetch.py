"""The part of a download over one connection: bundles of small files, and large files in pieces.

All data is checked against the server's CRC-32. A broken connection is reopened while there is
progress, and for a while without.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.api.routes import Route
from allranks.core.shared_work import Interrupted
from allranks.errors import NotFound, ServerError
from allranks.http_client import Client, shaped
from allranks.sdk.connection.reopened import Connection
from allranks.sdk.transfer.write_files import Destination, destination, is_there

if TYPE_CHECKING:
    from allranks.api.jobs import BundleHead, ChecksumAnswer

# Files up to this size are downloaded in bundles.
SMALL = 1 << 20


class Entry(NamedTuple):
    """A file of the record, its path in the folder and the name of its part; for models also the
    registered ``sha256``."""

    path: str
    size: int
    mtime_ns: int
    target: str
    part: str
    sha256: str = ""


class Tally:
    """The progress of all connections. ``size`` includes existing parts; ``received`` only new
    data."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.size = self.received = 0
        self.done: list[Entry] = []
        self.gone: list[Entry] = []

    def add(self, size: int, received: int) -> None:
        with self._lock:
            self.size += size
            self.received += received

    def landed(self, entry: Entry) -> None:
        with self._lock:
            self.done.append(entry)

    def lost(self, entry: Entry) -> None:
        """The job has removed the file since it was listed."""
        with self._lock:
            self.gone.append(entry)


class Place(NamedTuple):
    """The routes of a job's files, or of a model's, …, and its name."""

    file: Route[bytes]
    bundle: Route[bytes]
    checksum: Route[bytes]
    name: str


class Fetcher:
    """Downloads files of ``place`` into ``folder`` over one connection, until ``stop``.

    Raises Unreachable if the server stays down, ServerError if a file cannot be written or is
    damaged twice, Interrupted.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        place: Place,
        folder: Path,
        tally: Tally,
        stop: threading.Event,
    ) -> None:
        self._connection = Connection(connect, stop, "what was downloaded is kept")
        self._place, self._folder = place, folder
        self._tally, self._stop = tally, stop

    def close(self) -> None:
        self._connection.close()

    def do(self, unit: Sequence[Entry]) -> None:
        """One large file, or small ones."""
        if unit[0].size > SMALL:
            self.one(unit[0])
        else:
            self.many(unit)

    def many(self, files: Sequence[Entry]) -> None:
        """Small files, in one request."""
        for _ in range(2):
            sizes = json.dumps([{"path": e.path, "size": e.size} for e in files]).encode()
            to = self._place.bundle.at(self._place.name)
            body = self._connection.ask(lambda client: client.call(*to, sizes).body)  # noqa: B023
            files = self._unpacked(files, body)
            if not files:
                return
        raise _damaged(files[0])

    def one(self, entry: Entry) -> None:
        """A large file, continued if its part matches the beginning of the server's file."""
        with self._landing(entry) as file:
            if is_there(self._folder, entry.target, entry.size, entry.mtime_ns, entry.sha256):
                file.cut()  # another process has downloaded it
                self._tally.add(entry.size, 0)
                self._tally.landed(entry)
                return
            try:
                self._until_it_is_whole(entry, file)
            except NotFound:
                self._tally.add(-file.size, 0)
                file.cut()
                self._tally.lost(entry)

    def _unpacked(self, files: Sequence[Entry], body: bytes) -> list[Entry]:
        """Write the files of a bundle; returns those that arrived damaged."""
        at, damaged = 0, []
        for entry in files:
            head, _, _ = body[at : at + 200].partition(b"\n")
            try:
                header: BundleHead = json.loads(head)
                if header != {"size": None}:
                    shaped(header, {"size": int, "mtime_ns": int, "crc32": int})
            except (ValueError, ServerError):
                damaged.append(entry)
                continue
            at += len(head) + 1
            if header["size"] is None:
                self._tally.lost(entry)
                continue
            data = body[at : at + header["size"]]
            at += header["size"]
            if len(data) != header["size"] or zlib.crc32(data) != header["crc32"]:
                damaged.append(entry)
                continue
            with self._landing(entry) as file:
                file.cut()
                file.write(data)
                mtime_ns = entry.mtime_ns if entry.sha256 else header["mtime_ns"]
                file.finish(mtime_ns, entry.sha256)
            self._tally.add(entry.size, len(data))
            self._tally.landed(entry)
        return damaged

    def _until_it_is_whole(self, entry: Entry, file: Destination) -> None:
        for _ in range(2):
            self._agree(entry, file)
            self._tally.add(file.size, 0)
            self._connection.ask(lambda client: self._pull(client, entry, file))  # noqa: B023
            checksum = self._checksum(entry.path, entry.size)
            if file.size == entry.size == checksum["bytes"] and file.crc == checksum["crc32"]:
                file.finish(entry.mtime_ns, entry.sha256)
                self._tally.landed(entry)
                return
            self._tally.add(-file.size, 0)
            file.cut()
            entry = entry._replace(size=checksum["size"], mtime_ns=checksum["mtime_ns"])
        raise _damaged(entry)

    def _agree(self, entry: Entry, file: Destination) -> None:
        """Keep the part if it matches the server's file: a grown file continues, a rewritten one
        starts again."""
        if file.size > entry.size:
            file.cut(entry.size)
        if file.size:
            file.read()
            checksum = self._checksum(entry.path, file.size)
            if (checksum["bytes"], checksum["crc32"]) != (file.size, file.crc):
                file.cut()

    def _pull(self, client: Client, entry: Entry, file: Destination) -> None:
        """Download the missing rest, as far as the server has it."""
        if file.size == entry.size:
            return
        span = (file.size, entry.size)
        reply, pieces = client.part(self._place.file.url(self._place.name, entry.path), span)
        if reply.status == 416:  # the file has become shorter; the checksum detects it
            for _ in pieces:
                pass
            return
        if reply.status != 206:
            self._tally.add(-file.size, 0)
            file.cut()
        for piece in pieces:
            self._connection.hear(len(piece))
            data = piece[: entry.size - file.size]
            file.write(data)
            self._tally.add(len(data), len(piece))

    def _checksum(self, path: str, size: int) -> ChecksumAnswer:
        to = self._place.checksum.at(self._place.name, path, size=size)

        def ask(client: Client) -> ChecksumAnswer:
            last = b""
            for line in client.stream(*to):
                last = line
                self._connection.hear()
                if self._stop.is_set():
                    raise Interrupted
            try:
                answer = json.loads(last)
            except ValueError:
                raise client.closed() from None
            numbers = dict.fromkeys(("crc32", "bytes", "size", "mtime_ns"), int)
            checksum: ChecksumAnswer = shaped(answer, numbers)
            return checksum

        return self._connection.ask(ask)

    def _landing(self, entry: Entry) -> Any:
        return destination(self._folder, entry.target, entry.part, self._stop)


def _damaged(entry: Entry) -> ServerError:
    return ServerError(
        "it was downloaded twice and differed from the server's file both times",
        where=entry.path,
        hint="its job may still write it: `allranks job wait NAME`, then download again",
    )
