"""Transfer the contents of a state folder's files between a node and the server."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.agent.state.tree import ChangedMeanwhile, FileState, Tree
from allranks.agent.transport.link import ServerAddress
from allranks.core.data.state_manifest import Entry
from allranks.errors import UsageError

if TYPE_CHECKING:
    from allranks.api.agents import SyncAnswer

# Files up to SMALL bytes share requests of about PIECE bytes; larger ones are sent in such pieces.
SMALL, PIECE = 1 << 20, 4 << 20
# Bytes and number of changes that are uploaded before they are committed.
_BATCH_SIZE, _BATCH_COUNT = 64 << 20, 1000
# Seconds to wait for a response: the disk of the server's home may be busy.
_TIMEOUT = 60.0


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
    thread-safe. ``go_on`` is called between pieces, and may raise to stop. Every method may raise
    AllranksError."""

    def __init__(
        self, server: ServerAddress, node: int, go_on: Callable[[], None], route: str = "state"
    ) -> None:
        self._client = server.client(_TIMEOUT)
        self._base = f"/agent/v1/{node}/{route}"
        self.go_on = go_on

    def close(self) -> None:
        self._client.close()

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

    def hash(self, tree: Tree, path: str, state: FileState, keep: bool) -> tuple[str, bytes | None]:
        """A file's SHA-256, and its content if ``keep``. Raises ChangedMeanwhile and OSError."""
        digest = hashlib.sha256()
        pieces = list[bytes]()
        with tree.reading(path, state) as file:
            while piece := file.read(PIECE):
                self.go_on()
                digest.update(piece)
                if keep:
                    pieces.append(piece)
        return digest.hexdigest(), b"".join(pieces) if keep else None

    def upload(self, tree: Tree, changes: Sequence[LocalChange]) -> list[LocalChange]:
        """Upload the contents that the server lacks. Returns the changes without those of files
        that were written to meanwhile."""
        files = [change for change in changes if change.entry.what == "file"]
        hashes = sorted({change.entry.sha256 for change in files})
        lacks = self._client.json("POST", f"{self._base}/missing", hashes) if hashes else {}
        torn: set[str] = set()
        small, size = dict[str, bytes](), 0
        for change in files:
            sha256 = change.entry.sha256
            if sha256 not in lacks or sha256 in small:
                continue
            try:
                if change.entry.size > SMALL:
                    self._upload_large(tree, change, lacks[sha256])
                    del lacks[sha256]
                    continue
                small[sha256] = self._data(tree, change)
                size += change.entry.size
            except (ChangedMeanwhile, UsageError, OSError):
                torn.add(change.path)
            if size > PIECE:
                self._upload_small(small)
                lacks = {key: have for key, have in lacks.items() if key not in small}
                small, size = {}, 0
        self._upload_small(small)
        return [change for change in changes if change.path not in torn]

    def _data(self, tree: Tree, change: LocalChange) -> bytes:
        if change.data is not None:
            return change.data
        with tree.reading(change.path, change.state) as file:
            return file.read()

    def _upload_small(self, contents: Mapping[str, bytes]) -> None:
        self.go_on()
        if contents:
            head = json.dumps([[sha256, len(data)] for sha256, data in contents.items()])
            body = b"".join([head.encode(), b"\n", *contents.values()])
            self._client.call("PUT", f"{self._base}/contents", body)

    def _upload_large(self, tree: Tree, change: LocalChange, have: int) -> None:
        sha256, size = change.entry.sha256, change.entry.size
        with tree.reading(change.path, change.state) as file:
            while True:
                self.go_on()
                file.seek(have)
                query = f"offset={have}&size={size}"
                path = f"{self._base}/contents/{sha256}?{query}"
                # Send an empty piece even if all arrived: a killed server may not have finished it.
                piece = file.read(max(0, min(PIECE, size - have)))
                reply = self._client.call("PUT", path, piece)
                have = int(json.loads(reply.body)["have"])
                if have >= size:
                    break

    # ------------------------------------------------------------ down

    def fetch(self, folder: Path, entries: Sequence[Entry]) -> None:
        """Download contents to a folder, each named by its hash. Raises Damaged, OSError."""
        sizes = {entry.sha256: entry.size for entry in entries if entry.what == "file"}
        missing = {sha: size for sha, size in sizes.items() if not (folder / sha).exists()}
        for several in _bundles([sha for sha in missing if missing[sha] <= SMALL], missing):
            self._fetch_with_retry(folder, several, self._fetch_small)
        for sha256 in missing:
            if missing[sha256] > SMALL:
                self._fetch_with_retry(folder, {sha256: missing[sha256]}, self._fetch_large)

    def _fetch_with_retry(
        self,
        folder: Path,
        sizes: Mapping[str, int],
        fetch: Callable[[Path, Mapping[str, int]], list[str]],
    ) -> None:
        """Fetch contents that arrive damaged once more."""
        wrong = fetch(folder, sizes)
        if wrong:
            wrong = fetch(folder, {sha256: sizes[sha256] for sha256 in wrong})
        if wrong:
            raise Damaged(wrong[0])

    def _fetch_small(self, folder: Path, sizes: Mapping[str, int]) -> list[str]:
        """Returns the hashes of contents that arrived damaged."""
        self.go_on()
        body = json.dumps(list(sizes)).encode()
        reply = self._client.call("POST", f"{self._base}/contents", body).body
        head, _, rest = reply.partition(b"\n")
        at, wrong = 0, []
        for sha256, size in json.loads(head):
            data = rest[at : at + size]
            at += size
            if hashlib.sha256(data).hexdigest() == sha256:
                _write(folder, f"{sha256}.part", [data]).rename(folder / sha256)
            else:
                wrong.append(sha256)
        return wrong

    def _fetch_large(self, folder: Path, sizes: Mapping[str, int]) -> list[str]:
        wrong = []
        for sha256, size in sizes.items():
            digest = hashlib.sha256()

            def pieces(
                sha256: str = sha256, size: int = size, digest: Any = digest
            ) -> Iterator[bytes]:
                done = 0
                while done < size:
                    self.go_on()
                    query = f"offset={done}&size={min(PIECE, size - done)}"
                    path = f"{self._base}/contents/{sha256}?{query}"
                    data = self._client.call("GET", path).body
                    if not data:
                        return
                    digest.update(data)
                    done += len(data)
                    yield data

            partial = _write(folder, f"{sha256}.part", pieces())
            if digest.hexdigest() == sha256:
                partial.rename(folder / sha256)
            else:
                partial.unlink()
                wrong.append(sha256)
        return wrong


def _write(folder: Path, name: str, pieces: Sequence[bytes] | Iterator[bytes]) -> Path:
    """Write a file, and delete it if that fails."""
    path = folder / name
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _bundles(hashes: Sequence[str], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    bundle, size = dict[str, int](), 0
    for sha256 in hashes:
        bundle[sha256] = sizes[sha256]
        size += sizes[sha256]
        if size > PIECE:
            yield bundle
            bundle, size = {}, 0
    if bundle:
        yield bundle


def batches(changes: Iterable[LocalChange]) -> Iterator[list[LocalChange]]:
    """The changes in groups that are uploaded before they are committed."""
    batch, size = list[LocalChange](), 0
    for change in changes:
        batch.append(change)
        size += change.entry.size
        if size > _BATCH_SIZE or len(batch) >= _BATCH_COUNT or change.entry.size > SMALL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
