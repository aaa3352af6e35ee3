"""Transfer the contents of a state folder's files between a node and the server."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Generic, NamedTuple, TypeVar, cast

from allranks.agent.state.tree import ChangedMeanwhile, FileState, Tree
from allranks.agent.transport.link import ServerAddress
from allranks.core.data.state_manifest import Entry
from allranks.core.shared_work import CONNECTIONS, Interrupted, Shared
from allranks.errors import UsageError
from allranks.http_client import Client, FilePart

if TYPE_CHECKING:
    from allranks.api.agents import SyncAnswer

# Files up to SMALL bytes share requests of about PIECE bytes. Larger ones are fetched in such
# pieces, and sent in larger ones.
SMALL, PIECE, _SENT = 1 << 20, 4 << 20, 16 << 20
# Bytes, if of enough files for all connections, and number of changes that are uploaded before they
# are committed.
_BATCH_SIZE, _BATCH_COUNT = 64 << 20, 1000
# Seconds to wait for a response: the disk of the server's home may be busy.
_TIMEOUT = 60.0


Unit = TypeVar("Unit")


class Hashed(NamedTuple):
    sha256: str
    data: bytes | None


class LocalChange(NamedTuple):
    """A local change of a path: the file as seen, and its entry for the server. ``data``: the
    content of a small file, if it is in memory."""

    path: str
    state: FileState
    entry: Entry
    data: bytes | None = None


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

    def _share(self, units: Iterable[Unit], move: Callable[[_Carrier, Unit], None]) -> None:
        """Call ``move`` with each unit, in several threads with a connection each."""
        stop = threading.Event()

        def carrier() -> _Worker[Unit]:
            try:
                client = self._idle.pop()
            except IndexError:  # also if another thread took the last one
                client = self._server.client(_TIMEOUT)
            return _Worker(_Carrier(client, self._base, stop), move, self._idle.append)

        self.go_on()
        Shared(units, stop).run(carrier, self.go_on)

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

    def hash(
        self, tree: Tree, paths: Mapping[str, FileState], keep: Set[str]
    ) -> dict[str, Hashed | Exception]:
        """The SHA-256 of files, and the content of those to ``keep``; or what kept it from being
        read: ChangedMeanwhile or OSError."""
        hashed = dict[str, Hashed | Exception]()

        def read(carrier: _Carrier, several: Iterable[str]) -> None:
            for path in several:
                try:
                    hashed[path] = carrier.hash(tree, path, paths[path], path in keep)
                except (ChangedMeanwhile, OSError) as error:
                    hashed[path] = error

        self._share(_units({path: state.size for path, state in paths.items()}), read)
        return hashed

    def upload(self, tree: Tree, changes: Sequence[LocalChange]) -> list[LocalChange]:
        """Upload the contents that the server lacks. Returns the changes without those of files
        that were written to meanwhile."""
        files = {c.entry.sha256: c for c in reversed(changes) if c.entry.what == "file"}
        hashes = sorted(files)
        lacks = self._client.json("POST", f"{self._base}/missing", hashes) if hashes else {}
        torn = set[str]()

        def send(carrier: _Carrier, sizes: Mapping[str, int]) -> None:
            first, *others = (files[sha256] for sha256 in sizes)
            if first.entry.size <= SMALL:
                carrier.send_small(tree, [first, *others], torn.add)
                return
            try:
                carrier.send_large(tree, first, lacks[first.entry.sha256])
            except (ChangedMeanwhile, UsageError, OSError):
                torn.add(first.entry.sha256)

        self._share(
            _units({sha256: each.entry.size for sha256, each in files.items() if sha256 in lacks}),
            send,
        )
        return [change for change in changes if change.entry.sha256 not in torn]

    # ------------------------------------------------------------ down

    def fetch(self, folder: Path, entries: Sequence[Entry]) -> None:
        """Download contents to a folder, each named by its hash. Raises Damaged, OSError."""
        sizes = {entry.sha256: entry.size for entry in entries if entry.what == "file"}
        here = {*os.listdir(folder)} if sizes else set[str]()

        def fetch(carrier: _Carrier, sizes: Mapping[str, int]) -> None:
            if wrong := carrier.fetch(folder, sizes):  # once more
                wrong = carrier.fetch(folder, {sha256: sizes[sha256] for sha256 in wrong})
            if wrong:
                raise Damaged(wrong[0])

        self._share(_units({sha: size for sha, size in sizes.items() if sha not in here}), fetch)


class _Worker(Generic[Unit]):
    """A worker of ``Shared``: calls ``move``, and in the end ``release`` with its connection."""

    def __init__(
        self,
        carrier: _Carrier,
        move: Callable[[_Carrier, Unit], None],
        release: Callable[[Client], None],
    ) -> None:
        self._carrier, self._move, self._release = carrier, move, release

    def do(self, unit: Unit) -> None:
        self._move(self._carrier, unit)

    def close(self) -> None:
        self._release(self._carrier.client)


class _Carrier(NamedTuple):
    """Reads, sends and fetches contents over a connection of its own, until ``stop``: then its
    methods raise Interrupted."""

    client: Client
    base: str
    stop: threading.Event

    def go_on(self) -> None:
        if self.stop.is_set():
            raise Interrupted

    def hash(self, tree: Tree, path: str, state: FileState, keep: bool) -> Hashed:
        digest = hashlib.sha256()
        pieces = list[bytes]()
        with tree.reading(path, state) as file:
            while piece := file.read(PIECE):
                self.go_on()
                digest.update(piece)
                if keep:
                    pieces.append(piece)
        return Hashed(digest.hexdigest(), b"".join(pieces) if keep else None)

    def send_small(
        self, tree: Tree, changes: Sequence[LocalChange], torn: Callable[[str], None]
    ) -> None:
        """Send contents together. ``torn`` receives the hashes of those that cannot be read."""
        contents = dict[str, bytes]()
        for change in changes:
            try:
                contents[change.entry.sha256] = _data(tree, change)
            except (ChangedMeanwhile, OSError):
                torn(change.entry.sha256)
        self.go_on()
        if contents:
            head = json.dumps([[sha256, len(data)] for sha256, data in contents.items()])
            body = b"".join([head.encode(), b"\n", *contents.values()])
            self.client.call("PUT", f"{self.base}/contents", body)

    def send_large(self, tree: Tree, change: LocalChange, have: int) -> None:
        """Send one content in pieces, from what the server has of it on."""
        sha256, size = change.entry.sha256, change.entry.size
        with tree.reading(change.path, change.state) as file:
            while True:
                self.go_on()
                query = f"offset={have}&size={size}"
                path = f"{self.base}/contents/{sha256}?{query}"
                # Send an empty piece even if all arrived: a killed server may not have finished it.
                piece = FilePart(file, have, max(0, min(_SENT, size - have)))
                reply = self.client.call("PUT", path, cast(BinaryIO, piece))
                have = int(json.loads(reply.body)["have"])
                if have >= size:
                    break

    def fetch(self, folder: Path, sizes: Mapping[str, int]) -> list[str]:
        """Fetch a large content, or small ones together. Returns the hashes of those that arrived
        damaged."""
        self.go_on()
        ((sha256, size), *_) = sizes.items()
        if size > SMALL:
            return [] if self._fetch_large(folder, sha256, size) else [sha256]
        body = json.dumps(list(sizes)).encode()
        reply = self.client.call("POST", f"{self.base}/contents", body).body
        head, _, rest = reply.partition(b"\n")
        at, wrong = 0, []
        for sha256, size in json.loads(head):
            data = rest[at : at + size]
            at += size
            if hashlib.sha256(data).hexdigest() == sha256:
                _write(folder, sha256, [data]).rename(folder / sha256)
            else:
                wrong.append(sha256)
        return wrong

    def _fetch_large(self, folder: Path, sha256: str, size: int) -> bool:
        """Return whether it arrived undamaged."""
        digest = hashlib.sha256()

        def pieces() -> Iterator[bytes]:
            done = 0
            while done < size:
                self.go_on()
                query = f"offset={done}&size={min(PIECE, size - done)}"
                data = self.client.call("GET", f"{self.base}/contents/{sha256}?{query}").body
                if not data:
                    return
                digest.update(data)
                done += len(data)
                yield data

        partial = _write(folder, sha256, pieces())
        if digest.hexdigest() != sha256:
            partial.unlink()
            return False
        partial.rename(folder / sha256)
        return True


def _data(tree: Tree, change: LocalChange) -> bytes:
    if change.data is not None:
        return change.data
    with tree.reading(change.path, change.state) as file:
        return file.read()


def _write(folder: Path, sha256: str, pieces: Sequence[bytes] | Iterator[bytes]) -> Path:
    """Write a file with a name of its own, and delete it if that fails: a thread that waited for
    the server may end after another has begun with the same content."""
    path = folder / f"{sha256}.{secrets.token_hex(4)}.part"
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _units(sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """The contents, each large one alone and small ones together."""
    bundle, total = dict[str, int](), 0
    for sha256, size in sizes.items():
        if size > SMALL:
            yield {sha256: size}
            continue
        bundle[sha256] = size
        total += size
        if total > PIECE or len(bundle) == _BATCH_COUNT:
            yield bundle
            bundle, total = {}, 0
    if bundle:
        yield bundle


def batches(changes: Iterable[LocalChange]) -> Iterator[list[LocalChange]]:
    """The changes in groups that are uploaded before they are committed."""
    batch, size = list[LocalChange](), 0
    for change in changes:
        batch.append(change)
        size += change.entry.size
        is_large = size > _BATCH_SIZE and len(batch) >= CONNECTIONS
        if is_large or len(batch) >= _BATCH_COUNT:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
