"""Download inputs that the server sees, for a node that does not see the same files."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import BufferedIOBase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks.agent.data.file_entry import Changed, FileEntry, Report
from allranks.agent.data.input_request import InputRequest
from allranks.agent.data.into_file import (
    LARGEST_PIECE,
    SENDFILE_FROM,
    SLICE,
    IntoFile,
    NotWritten,
    of_this_disk,
)
from allranks.agent.transport.link import ServerAddress
from allranks.core.shared_work import packs
from allranks.errors import AllranksError, Conflict, NotFound, Passing, Unreachable
from allranks.http_client import Client, Into, Reply

if TYPE_CHECKING:
    from allranks.api.agents import InputListing

# The most bytes in one request for several files.
_PIECE = 8 << 20
# The most files in one request, and the most requests at once.
_COUNT, _STREAMS = 1000, 4
# Seconds for an answer: the disk of the server's home may be busy.
_TIMEOUT = 60.0
# Seconds between calls to a server that does not answer.
_AGAIN = 0.5


class _Piece(NamedTuple):
    """``size`` bytes of a file from ``offset`` on."""

    file: FileEntry
    offset: int
    size: int


class _IntoFiles:
    """Writes the bytes of pieces to their files, as they arrive."""

    def __init__(self, pieces: Sequence[_Piece], folder: Path, buffer: memoryview) -> None:
        self.size = sum(piece.size for piece in pieces)
        self._pieces, self._folder, self._buffer = pieces, folder, buffer

    def read(self, file: BufferedIOBase) -> None:
        for piece in self._pieces:
            if piece.size:
                self._write(file, piece)

    def _write(self, file: BufferedIOBase, piece: _Piece) -> None:
        path = f"{self._folder}/{piece.file.name}"
        is_whole = piece.size == piece.file.size
        with of_this_disk():
            out = _new(path) if is_whole else os.open(path, os.O_WRONLY | os.O_CLOEXEC)
        try:
            IntoFile(out, piece.offset, piece.size, self._buffer).read(file)
        finally:
            os.close(out)


class InputServer:
    """The server's routes for the inputs of one node. Calls end with Stopped once ``stopped`` is
    set. ``waits`` is called while the server serves others."""

    def __init__(
        self,
        server: ServerAddress,
        node: int,
        stopped: threading.Event,
        waits: Callable[[], None] = lambda: None,
    ) -> None:
        self._server, self._base = server, f"/agent/v1/{node}/input"
        self._stopped, self._waits = stopped, waits

    def client(self) -> Client:
        return self._server.client(_TIMEOUT)

    def digest(self, client: Client, name: str) -> str:
        """Of what the server sees now: see `local_digest`."""
        answer = json.loads(self.call(client, "GET", f"{name}/digest"))
        return str(answer["digest"])

    def read(self, client: Client, name: str, body: bytes, into: Into) -> bool:
        """Read pieces; whether they have the size of ``into``, which then has them."""
        reply = self._reply(client, "POST", name, body, into)
        return reply.headers.get("content-length") == str(into.size)

    def call(self, client: Client, method: str, path: str) -> bytes:
        return self._reply(client, method, path).body

    def _reply(
        self,
        client: Client,
        method: str,
        path: str,
        body: bytes | None = None,
        into: Into | None = None,
    ) -> Reply:
        while True:
            if self._stopped.is_set():
                raise Stopped
            try:
                return client.call(method, f"{self._base}/{path}", body, into=into)
            except Passing:  # it holds the call for some seconds first
                self._waits()
            except Unreachable:
                self._stopped.wait(_AGAIN)


class Stopped(Exception):
    """The download is to stop."""


class ServerInput:
    """Lists and reads the files of an input that the server sees: a ``Source`` of the cache."""

    def __init__(self, request: InputRequest, server: InputServer) -> None:
        self.request, self._server = request, server
        # Of the last listing: files that lie outside of the input, and modes by name.
        self.left_out = 0
        self._modes: dict[str, int] = {}
        self._is_file = False

    def list_files(self) -> tuple[list[FileEntry], bool]:
        with self._server.client() as client:
            listed: InputListing = json.loads(self._server.call(client, "GET", self.request.name))
        self.left_out, self._is_file = listed["left_out"], listed["is_file"]
        entries = []
        for name, size, mtime_ns, mode in listed["files"]:
            self._modes[name] = mode
            entries.append(
                FileEntry(name, name, size, f"{mtime_ns}.{mode & 0o111}", mtime_ns / 1e9)
            )
        if not entries:
            raise self.explain(FileNotFoundError())
        return self.request.own_share(entries), self._is_file

    def fetch(
        self, items: Sequence[FileEntry], folder: Path, journal: Path, report: Report
    ) -> dict[str, int]:
        """Complete files are noted in the journal, so that a killed download resumes."""
        done = _read_journal(journal)
        missing = [item for item in items if not _is_there(item, folder, done)]
        for above in {os.path.dirname(f"{folder}/{item.name}") for item in missing}:
            os.makedirs(above, exist_ok=True)
        for item in missing:
            if not 0 < item.size <= LARGEST_PIECE:  # others are created when they arrive
                with open(_new(f"{folder}/{item.name}"), "wb") as file:
                    file.truncate(item.size)
        clients, opened = threading.local(), list[Client]()
        left = {item.name: item.size for item in missing}
        lock = threading.Lock()
        with journal.open("a") as lines, ThreadPoolExecutor(_STREAMS) as pool:

            def get(pieces: Sequence[_Piece]) -> None:
                if not hasattr(clients, "own"):
                    clients.own = self._server.client()
                    clients.buffer = memoryview(bytearray(SLICE))
                    opened.append(clients.own)
                self._get(clients.own, clients.buffer, pieces, folder)
                whole = list[FileEntry]()
                with lock:
                    for piece in pieces:
                        report(piece.size, True)
                        left[piece.file.name] -= piece.size
                        if not left[piece.file.name]:
                            whole.append(piece.file)
                # The server refuses pieces, even without a byte, of a file that has changed.
                checks = [_Piece(file, 0, 0) for file in whole if file.size >= SENDFILE_FROM]
                if checks:
                    self._get(clients.own, clients.buffer, checks, folder)
                with lock:
                    for file in whole:
                        self._complete(file, folder)
                        row = [file.name, file.tag, file.size, None, 0]
                        lines.write(json.dumps(row) + "\n")

            futures = [pool.submit(get, pieces) for pieces in _requests(missing)]
            try:
                for future in futures:
                    future.result()
            finally:
                pool.shutdown(cancel_futures=True)
                for client in opened:
                    client.close()
        missing_names = {item.name for item in missing}
        for item in items:
            if item.name not in missing_names:
                report(item.size, False)
        return dict.fromkeys((item.name for item in items), 0)

    def explain(self, error: Exception) -> AllranksError:
        return NotFound(
            f"the input {self.request.name} has no file on the server",
            where=self.request.source,
            hint="check the path on the machine of the server",
        )

    def _get(
        self, client: Client, buffer: memoryview, pieces: Sequence[_Piece], folder: Path
    ) -> None:
        rows = [
            [piece.file.name, piece.file.size, _mtime_ns(piece.file), piece.offset, piece.size]
            for piece in pieces
        ]
        body = json.dumps(rows).encode()
        files = _IntoFiles(pieces, folder, buffer)
        try:
            if not self._server.read(client, self.request.name, body, files):
                raise Changed(self.request.name)
        except Conflict as error:
            raise Changed(str(error)) from None
        except NotWritten as failure:
            raise failure.error from None

    def _complete(self, item: FileEntry, folder: Path) -> None:
        path = f"{folder}/{item.name}"
        os.chmod(path, 0o444 | self._modes[item.name] & 0o111)
        os.utime(path, ns=(_mtime_ns(item),) * 2)


def _mtime_ns(item: FileEntry) -> int:
    return int(item.tag.partition(".")[0])


def _new(path: str) -> int:
    """A new file. It never overwrites one in place: older entries may share that."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o644)
    except FileExistsError:
        os.unlink(path)
        return os.open(path, flags, 0o644)


def _read_journal(journal: Path) -> set[tuple[str, str]]:
    """Name and tag of files that are complete."""
    done = set()
    for line in journal.read_text(errors="replace").splitlines() if journal.exists() else ():
        try:
            name, tag, *_ = json.loads(line)
        except ValueError:
            continue  # a last line cut off by a kill
        done.add((name, tag))
    return done


def _is_there(item: FileEntry, folder: Path, done: set[tuple[str, str]]) -> bool:
    try:
        return (item.name, item.tag) in done and (folder / item.name).stat().st_size == item.size
    except OSError:
        return False


def _requests(files: Sequence[FileEntry]) -> Iterator[list[_Piece]]:
    """All bytes of all files in their order, in groups for one request each."""
    pieces = (
        _Piece(file, offset, min(LARGEST_PIECE, file.size - offset))
        for file in files
        for offset in (range(0, file.size, LARGEST_PIECE) if file.size else (0,))
    )
    return packs(pieces, lambda piece: piece.size, _PIECE, _COUNT)
