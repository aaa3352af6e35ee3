"""One connection's share of a download: many small files at once, a large one piece by piece.

Whatever is fetched is held against the server's CRC-32 of it. A connection that breaks is opened
again for as long as something comes of it, and for `_PAUSES` when nothing does.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from allranks.errors import NotFound, ServerError, Unreachable
from allranks.http_client import Client
from allranks.sdk.connection.urls import checksum_path, file_path
from allranks.sdk.transfer.write_files import Destination, Stopped, destination, is_there

# Seconds between tries while nothing comes; a server of ours that was killed is started by the
# first of them, one on another machine has this long to come back.
_PAUSES = (0.1, 0.3, 1.0, 3.0, 6.0, 10.0, 20.0)

T = TypeVar("T")


class Wanted(NamedTuple):
    """A file of the record, where it goes below the folder, and its part's name beside it; of a
    model its ``sha256``, too, by which it was registered."""

    path: str
    size: int
    mtime_ns: int
    goal: str
    part: str
    sha256: str = ""


class Tally:
    """What several connections have done so far. ``size`` counts what was there of a part, too;
    ``received`` only what came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.size = self.received = 0
        self.done: list[Wanted] = []
        self.gone: list[Wanted] = []

    def add(self, size: int, received: int) -> None:
        with self._lock:
            self.size += size
            self.received += received

    def landed(self, each: Wanted) -> None:
        with self._lock:
            self.done.append(each)

    def lost(self, each: Wanted) -> None:
        """The job has removed it since it was told of."""
        with self._lock:
            self.gone.append(each)


class Fetcher:
    """Fetches files of what has the address ``place`` into ``folder`` over one connection, until
    ``stop``.

    Raises Unreachable when the server stays away, ServerError when a file cannot be written, is
    twice not what the server says it is, or not what was registered, Stopped.
    """

    def __init__(
        self,
        connect: Callable[[], Client],
        place: str,
        folder: Path,
        tally: Tally,
        stop: threading.Event,
    ) -> None:
        self._connect, self._place, self._folder = connect, place, folder
        self._tally, self._stop = tally, stop
        self._client: Client | None = None
        self._heard = 0

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def many(self, files: Sequence[Wanted]) -> None:
        """Small files, in one request."""
        for _ in range(2):
            asked = json.dumps([{"path": each.path, "size": each.size} for each in files]).encode()
            path = f"{self._place}/bundle"
            body = self._patiently(lambda client: client.call("POST", path, asked).body)  # noqa: B023
            files = self._unpacked(files, body)
            if not files:
                return
        raise _damaged(files[0])

    def one(self, each: Wanted) -> None:
        """A large file, from where its part ends if that is how the server's begins."""
        with self._landing(each) as file:
            if is_there(self._folder, each.goal, each.size, each.mtime_ns, each.sha256):
                file.discard()  # another has fetched it meanwhile
                self._tally.add(each.size, 0)
                self._tally.landed(each)
                return
            try:
                self._until_it_is_whole(each, file)
            except NotFound:
                self._tally.add(-file.size, 0)
                file.discard()
                self._tally.lost(each)

    def _unpacked(self, files: Sequence[Wanted], body: bytes) -> list[Wanted]:
        """Write what a bundle holds; those that did not arrive as they were sent."""
        at, damaged = 0, []
        for each in files:
            head, _, _ = body[at : at + 200].partition(b"\n")
            try:
                told: dict[str, Any] = json.loads(head)
            except ValueError:
                damaged.append(each)
                continue
            at += len(head) + 1
            if told["size"] is None:
                self._tally.lost(each)
                continue
            data = body[at : at + told["size"]]
            at += told["size"]
            if len(data) != told["size"] or zlib.crc32(data) != told["crc32"]:
                damaged.append(each)
                continue
            with self._landing(each) as file:
                file.cut()
                file.write(data)
                file.finish(told["mtime_ns"], each.sha256)
            self._tally.add(each.size, len(data))
            self._tally.landed(each)
        return damaged

    def _until_it_is_whole(self, each: Wanted, file: Destination) -> None:
        for _ in range(2):
            self._agree(each, file)
            self._tally.add(file.size, 0)
            self._patiently(lambda client: self._pull(client, each, file))  # noqa: B023
            told = self._checksum(each.path, each.size)
            if file.size == each.size == told["bytes"] and file.crc == told["crc32"]:
                file.finish(each.mtime_ns, each.sha256)
                self._tally.landed(each)
                return
            self._tally.add(-file.size, 0)
            file.discard()
            each = each._replace(size=told["size"], mtime_ns=told["mtime_ns"])
        raise _damaged(each)

    def _agree(self, each: Wanted, file: Destination) -> None:
        """Keep of the part what is the server's, as it is now: a file that grew is gone on with,
        one that was written anew is begun anew."""
        if file.size > each.size:
            file.cut(each.size)
        if file.size:
            file.read()
            told = self._checksum(each.path, file.size)
            if (told["bytes"], told["crc32"]) != (file.size, file.crc):
                file.cut()

    def _pull(self, client: Client, each: Wanted, file: Destination) -> None:
        """What is missing, as far as the server has it."""
        if file.size == each.size:
            return
        span = (file.size, each.size)
        reply, pieces = client.part(file_path(self._place, each.path), span)
        if reply.status == 416:  # it has become shorter; the checksum tells
            for _ in pieces:
                pass
            return
        if reply.status != 206:
            self._tally.add(-file.size, 0)
            file.cut()
        for piece in pieces:
            self._heard += len(piece)
            wanted = piece[: each.size - file.size]
            file.write(wanted)
            self._tally.add(len(wanted), len(piece))

    def _checksum(self, path: str, size: int) -> dict[str, Any]:
        def ask(client: Client) -> dict[str, Any]:
            last = b""
            for line in client.stream("GET", checksum_path(self._place, path, size)):
                last = line
                self._heard += 1
                if self._stop.is_set():
                    raise Stopped
            try:
                told: dict[str, Any] = json.loads(last)
            except ValueError:
                raise Unreachable(f"the server at {client.url} broke off") from None
            return told

        return self._patiently(ask)

    def _patiently(self, ask: Callable[[Client], T]) -> T:
        """The answer, asked for again when the connection breaks."""
        pauses = iter(_PAUSES)
        while True:
            before = self._heard
            try:
                if self._client is None:
                    self._client = self._connect()
                return ask(self._client)
            except Unreachable as error:
                self.close()
                if self._heard > before:
                    pauses = iter(_PAUSES)
                pause = next(pauses, None)
                if pause is None:
                    error.hint = "run the same command again once it is back: what came is kept"
                    raise
                if self._stop.wait(pause):
                    raise Stopped from None

    def _landing(self, each: Wanted) -> Any:
        return destination(self._folder, each.goal, each.part, self._stop)


def _damaged(each: Wanted) -> ServerError:
    return ServerError(
        "it was fetched twice, and twice it was not what the server has",
        where=each.path,
        hint="does its job still write it? `allranks job wait NAME`, then fetch it again",
    )
