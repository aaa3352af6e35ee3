"""Transfer the contents of a state folder's files between a node and the server."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, TypeVar, cast

from allranks.agent.data.into_file import LARGEST_PIECE, SLICE, IntoFile, NotWritten
from allranks.agent.state.tree import ChangedMeanwhile, FileState, Tree
from allranks.agent.transport.link import ServerAddress
from allranks.core.data.state_manifest import Entry
from allranks.core.shared_work import Interrupted, Shared, large_first, packs
from allranks.errors import UsageError
from allranks.http_client import Client, FilePart

if TYPE_CHECKING:
    from allranks.api.agents import SyncAnswer

# Files up to SMALL bytes share requests of about PIECE bytes, and so many files at most. Larger
# ones are sent in larger pieces.
SMALL, PIECE, _FILES, _SENT = 1 << 20, 4 << 20, 1000, 16 << 20
# Seconds to wait for a response: the disk of the server's home may be busy.
_TIMEOUT = 60.0


Unit = TypeVar("Unit")


class LocalChange(NamedTuple):
    """A local change of a path: the file as seen, and its entry for the server."""

    path: str
    state: FileState
    entry: Entry


# Files whose contents the server has by now, and what kept others from being read:
# ChangedMeanwhile or OSError.
Ended = dict[str, LocalChange | Exception]


class Damaged(Exception):
    """A content that the server has does not match its hash."""

    def __init__(self, sha256: str) -> None:
        super().__init__(sha256)
        self.sha256 = sha256


class StateClient:
    """Client of the server's routes for one synchronized folder of a node, ``route``; not
    thread-safe. ``go_on`` is called every tenth of a second, and may raise to stop. Every method
    may raise AllranksError."""

    def __init__(
        self, server: ServerAddress, node: int, go_on: Callable[[], None], route: str = "state"
    ) -> None:
        self._server, self._client = server, server.client(_TIMEOUT)
        # Those of the threads that send or fetch contents, until the next ones need them.
        self._idle = list[Client]()
        self._base = f"/agent/v1/{node}/{route}"
        self.go_on = go_on

    def close(self) -> None:
        for client in (self._client, *self._idle):
            client.close()

    def _share(
        self,
        units: Iterable[Unit],
        move: Callable[[_Carrier, Unit], None],
        progress: Callable[[], None],
    ) -> None:
        """Call ``move`` with each unit, in several threads with a connection each."""
        stop = threading.Event()

        def carrier() -> _Carrier:
            try:
                client = self._idle.pop()
            except IndexError:  # also if another thread took the last one
                client = self._server.client(_TIMEOUT)
            return _Carrier(client, self._base, stop, move, self._idle.append)

        self.go_on()
        Shared(units, stop).run(carrier, progress)

    def sync(self, request: Mapping[str, Any]) -> SyncAnswer:
        answer: SyncAnswer = self._client.json("POST", f"{self._base}/sync", request)
        return answer

    def report_damaged(self, sha256: str) -> int:
        """Report a damaged content. Returns the intact version that is current from now on."""
        answer = self._client.json("POST", f"{self._base}/contents/{sha256}/damaged")
        return int(answer["version"])

    def keep_torn(self, attempt: int, files: Iterable[tuple[str, Entry]]) -> str:
        """Save uploaded files that are not complete in a place of their own. Returns what messages
        call it."""
        puts = [{"path": path, "base": 0, "entry": list(entry)} for path, entry in files]
        request = {"attempt": attempt, "puts": puts}
        answer = self._client.json("POST", f"{self._base}/torn", request)
        return str(answer.get("folder") or f"version {answer['version']}")

    def report_unfinished(self, paths: Sequence[str]) -> None:
        """Report which files of a working folder are being written."""
        self._client.json("PUT", f"{self._base}/unfinished", paths)

    # ------------------------------------------------------------ up

    def upload(
        self,
        tree: Tree,
        files: Mapping[str, FileState],
        unsent: dict[str, LocalChange],
        ended: Ended,
        progress: Callable[[], None] = lambda: None,
    ) -> None:
        """Send the contents of files that the server lacks; small ones first: they often refer to
        others and change often. ``unsent`` has those that were hashed before, and receives others;
        ``progress`` is called often."""
        upload = _Upload(tree, files, unsent, ended)
        small = [path for path in files if upload.is_small(path)]
        large = [[path] for path in files if not upload.is_small(path)]

        def go_on() -> None:
            self.go_on()
            progress()

        self._share(
            [*packs(small, lambda path: files[path].size, PIECE, _FILES), *large],
            lambda carrier, paths: carrier.send(upload, paths),
            go_on,
        )

    # ------------------------------------------------------------ down

    def fetch(self, folder: Path, entries: Sequence[Entry]) -> None:
        """Download contents to a folder, each named by its hash. Raises Damaged, OSError."""
        entries = [*{entry.sha256: entry for entry in entries if entry.what == "file"}.values()]
        here = {*os.listdir(folder)} if entries else set[str]()
        lacking = [entry for entry in entries if entry.sha256 not in here]

        def fetch(carrier: _Carrier, some: Sequence[Entry]) -> None:
            if wrong := carrier.fetch(folder, some):  # once more
                wrong = carrier.fetch(folder, wrong)
            if wrong:
                raise Damaged(wrong[0].sha256)

        units = large_first(lacking, lambda entry: entry.size, SMALL, PIECE, _FILES)
        self._share(units, fetch, self.go_on)


class _Upload:
    """The files of ``StateClient.upload``."""

    def __init__(
        self,
        tree: Tree,
        files: Mapping[str, FileState],
        unsent: dict[str, LocalChange],
        ended: Ended,
    ) -> None:
        self._tree, self._files, self._unsent, self.ended = tree, files, unsent, ended
        # The paths of each large content that a thread sends.
        self._claims = dict[str, list[str]]()
        self._lock = threading.Lock()

    def is_small(self, path: str) -> bool:
        return self._files[path].size <= SMALL

    def reading(self, path: str) -> AbstractContextManager[BinaryIO]:
        return self._tree.reading(path, self._files[path])

    def known(self, path: str) -> LocalChange | None:
        """The change of a file that is hashed."""
        change = self._unsent.get(path)
        return change if change is not None and change.state == self._files[path] else None

    def hashed(self, path: str, sha256: str) -> LocalChange:
        state = self._files[path]
        entry = Entry("file", sha256, state.size, state.mtime_ns, state.mode)
        change = self._unsent[path] = LocalChange(path, state, entry)
        return change

    def claim(self, change: LocalChange) -> bool:
        """Whether no other thread sends this content, which then ends this file, too."""
        with self._lock:
            paths = self._claims.setdefault(change.entry.sha256, [])
            paths.append(change.path)
            return len(paths) == 1

    def end(self, path: str, error: Exception | None = None) -> None:
        with self._lock:
            change = self.known(path)
            paths = self._claims.pop(change.entry.sha256, ()) if change is not None else ()
            for each in {path, *paths}:
                self.ended[each] = error or self._unsent[each]


class _Carrier(NamedTuple):
    """A worker of ``Shared`` that calls ``move``, and in the end ``release`` with its connection.
    Reads, sends and fetches contents until ``stop``: then its methods raise Interrupted."""

    client: Client
    base: str
    stop: threading.Event
    move: Callable[[_Carrier, Any], None]
    release: Callable[[Client], None]

    def do(self, unit: object) -> None:
        self.move(self, unit)

    def close(self) -> None:
        self.release(self.client)

    def go_on(self) -> None:
        if self.stop.is_set():
            raise Interrupted

    def send(self, upload: _Upload, paths: Sequence[str]) -> None:
        """Send what the server lacks of a large file, or of small ones together."""
        if upload.is_small(paths[0]):
            self._send_small(upload, paths)
            return
        error: Exception | None = None
        try:
            with upload.reading(paths[0]) as file:
                change = upload.known(paths[0]) or upload.hashed(paths[0], self._hash(file))
                if not upload.claim(change):
                    return
                self._send_large(file, change.entry)
        except (ChangedMeanwhile, OSError) as failure:
            error = failure
        except UsageError as failure:  # it is not what was hashed
            error = ChangedMeanwhile(failure.message)
        upload.end(paths[0], error)

    def _send_small(self, upload: _Upload, paths: Sequence[str]) -> None:
        contents = dict[str, bytes]()
        for path in paths:
            self.go_on()
            try:
                with upload.reading(path) as file:
                    data = file.read()
            except (ChangedMeanwhile, OSError) as error:
                upload.end(path, error)
            else:
                sha256 = hashlib.sha256(data).hexdigest()
                upload.hashed(path, sha256)
                contents[sha256] = data
        lacks = self._missing([*contents]) if contents else {}
        if sent := {sha256: contents[sha256] for sha256 in lacks}:
            head = json.dumps([[sha256, len(data)] for sha256, data in sent.items()])
            body = b"".join([head.encode(), b"\n", *sent.values()])
            self.client.call("PUT", f"{self.base}/contents", body)
        for path in paths:
            if path not in upload.ended:
                upload.end(path)

    def _send_large(self, file: BinaryIO, entry: Entry) -> None:
        """Send a content in pieces, from what the server has of it on."""
        sha256, size = entry.sha256, entry.size
        have = self._missing([sha256]).get(sha256)
        while have is not None:
            self.go_on()
            # Send an empty piece even if all arrived: a killed server may not have finished it.
            piece = FilePart(file, have, max(0, min(_SENT, size - have)))
            path = f"{self.base}/contents/{sha256}?offset={have}&size={size}"
            reply = self.client.call("PUT", path, cast(BinaryIO, piece))
            have = int(json.loads(reply.body)["have"])
            have = have if have < size else None

    def _missing(self, hashes: Sequence[str]) -> dict[str, int]:
        """Those contents that the server lacks, with the bytes that it has of them."""
        lacks: dict[str, int] = self.client.json("POST", f"{self.base}/missing", hashes)
        return lacks

    def _hash(self, file: BinaryIO) -> str:
        digest, buffer = hashlib.sha256(), memoryview(bytearray(SLICE))
        while size := file.readinto(buffer):  # type: ignore[attr-defined]
            self.go_on()
            digest.update(buffer[:size])
        return digest.hexdigest()

    def fetch(self, folder: Path, entries: Sequence[Entry]) -> list[Entry]:
        """Fetch a large content, or small ones together. Returns those that arrived damaged."""
        self.go_on()
        if entries[0].size > SMALL:
            return [entry for entry in entries if not self._fetch_large(folder, *entry[1:3])]
        body = json.dumps([entry.sha256 for entry in entries]).encode()
        head, _, rest = self.client.call("POST", f"{self.base}/contents", body).body.partition(
            b"\n"
        )
        at, wrong = 0, []
        for entry, (_, size) in zip(entries, json.loads(head), strict=True):
            data = rest[at : at + size]
            at += size
            if hashlib.sha256(data).hexdigest() == entry.sha256:
                partial = _write(folder, entry.sha256, lambda file: file.write(data))  # noqa: B023
                partial.rename(folder / entry.sha256)
            else:
                wrong.append(entry)
        return wrong

    def _fetch_large(self, folder: Path, sha256: str, size: int) -> bool:
        """Return whether it arrived undamaged."""
        digest, buffer = hashlib.sha256(), memoryview(bytearray(SLICE))

        def receive(file: BinaryIO) -> None:
            at = 0
            while at < size:
                self.go_on()
                length = min(LARGEST_PIECE, size - at)
                into = IntoFile(file.fileno(), at, length, buffer, digest.update)
                path = f"{self.base}/contents/{sha256}?offset={at}&size={length}"
                body = self.client.call("GET", path, into=into).body
                if body:  # 0.1.0 sends less at once
                    into.size = len(body)
                    into.read(BytesIO(body))
                if into.at == at:
                    return
                at = into.at

        try:
            partial = _write(folder, sha256, receive)
        except NotWritten as failure:
            raise failure.error from None
        if digest.hexdigest() != sha256:
            partial.unlink()
            return False
        partial.rename(folder / sha256)
        return True


def _write(folder: Path, sha256: str, write: Callable[[BinaryIO], object]) -> Path:
    """Write a file with a name of its own, and delete it if that fails: a thread that waited for
    the server may end after another has begun with the same content."""
    path = folder / f"{sha256}.{secrets.token_hex(4)}.part"
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            write(file)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path
