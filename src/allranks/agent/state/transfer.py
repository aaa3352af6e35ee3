"""Contents of a state's files on their way between a node and the server, piece by piece."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks.agent.state.tree import Seen, Torn, Tree
from allranks.agent.transport.link import ServerAddress
from allranks.errors import UsageError
from allranks.plan.data.state_manifest import Entry

# What is at most this large goes with others, in so many bytes at once; the rest in such pieces.
SMALL, PIECE = 1 << 20, 4 << 20
# Seconds for an answer: the disk of the server's home may be busy.
_TIMEOUT = 60.0


class Changed(NamedTuple):
    """What a node has to tell of a path: how it lies there, and what that is for the others. Of a
    small file the ``data``, as it was then, may be at hand."""

    path: str
    seen: Seen
    entry: Entry
    data: bytes | None = None


class Damaged(Exception):
    """What the server gives is not what its name says."""

    def __init__(self, sha256: str) -> None:
        super().__init__(sha256)
        self.sha256 = sha256


class Wire:
    """Speaks for one node of a job. ``go_on`` is called between pieces, and may raise. One thread
    at a time; every call may raise AllranksError."""

    def __init__(self, door: ServerAddress, node: int, go_on: Callable[[], None]) -> None:
        self._client = door.client(_TIMEOUT)
        self._base = f"/agent/v1/{node}/state"
        self.go_on = go_on

    def close(self) -> None:
        self._client.close()

    def sync(self, told: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = self._client.json("POST", f"{self._base}/sync", told)
        return found

    def damaged(self, sha256: str) -> int:
        """Tell of a content that is not what its name says; the version that holds instead."""
        found = self._client.json("POST", f"{self._base}/contents/{sha256}/damaged")
        return int(found["version"])

    # ------------------------------------------------------------ up

    def hash(self, tree: Tree, path: str, seen: Seen, keep: bool) -> tuple[str, bytes | None]:
        """A file's SHA-256, and its content if that is to be kept. Raises Torn and OSError."""
        found, kept = hashlib.sha256(), list[bytes]()
        with tree.reading(path, seen) as file:
            while piece := file.read(PIECE):
                self.go_on()
                found.update(piece)
                if keep:
                    kept.append(piece)
        return found.hexdigest(), b"".join(kept) if keep else None

    def bring(self, tree: Tree, several: Sequence[Changed]) -> list[Changed]:
        """Send the contents that the server has not got; those of the files that it then has. A
        file that is written to meanwhile is left out."""
        files = [each for each in several if each.entry.what == "file"]
        asked = sorted({each.entry.sha256 for each in files})
        lacks = self._client.json("POST", f"{self._base}/missing", asked) if asked else {}
        torn: set[str] = set()
        small, size = dict[str, bytes](), 0
        for each in files:
            sha256 = each.entry.sha256
            if sha256 not in lacks or sha256 in small:
                continue
            try:
                if each.entry.size > SMALL:
                    self._bring_large(tree, each, lacks[sha256])
                    del lacks[sha256]
                    continue
                small[sha256] = self._data(tree, each)
                size += each.entry.size
            except (Torn, UsageError, OSError):
                torn.add(each.path)
            if size > PIECE:
                self._bring_small(small)
                lacks = {key: have for key, have in lacks.items() if key not in small}
                small, size = {}, 0
        self._bring_small(small)
        return [each for each in several if each.path not in torn]

    def _data(self, tree: Tree, each: Changed) -> bytes:
        if each.data is not None:
            return each.data
        with tree.reading(each.path, each.seen) as file:
            return file.read()

    def _bring_small(self, several: Mapping[str, bytes]) -> None:
        self.go_on()
        if several:
            head = json.dumps([[sha256, len(data)] for sha256, data in several.items()])
            body = b"".join([head.encode(), b"\n", *several.values()])
            self._client.call("PUT", f"{self._base}/contents", body)

    def _bring_large(self, tree: Tree, each: Changed, have: int) -> None:
        sha256, size = each.entry.sha256, each.entry.size
        with tree.reading(each.path, each.seen) as file:
            while True:
                self.go_on()
                file.seek(have)
                query = f"offset={have}&size={size}"
                path = f"{self._base}/contents/{sha256}?{query}"
                # Once even when all of it came: who took the last piece may have been killed.
                piece = file.read(max(0, min(PIECE, size - have)))
                reply = self._client.call("PUT", path, piece)
                have = int(json.loads(reply.body)["have"])
                if have >= size:
                    break

    # ------------------------------------------------------------ down

    def fetch(self, folder: Path, entries: Sequence[Entry]) -> None:
        """Have these contents in a folder, each under its hash. Raises Damaged, OSError."""
        wanted = {each.sha256: each.size for each in entries if each.what == "file"}
        missing = {sha: size for sha, size in wanted.items() if not (folder / sha).exists()}
        for several in _bundles([sha for sha in missing if missing[sha] <= SMALL], missing):
            self._twice(folder, several, self._fetch_small)
        for sha256 in missing:
            if missing[sha256] > SMALL:
                self._twice(folder, {sha256: missing[sha256]}, self._fetch_large)

    def _twice(
        self,
        folder: Path,
        wanted: Mapping[str, int],
        fetch: Callable[[Path, Mapping[str, int]], list[str]],
    ) -> None:
        """What went wrong on the way is asked for once more."""
        wrong = fetch(folder, wanted)
        if wrong:
            wrong = fetch(folder, {each: wanted[each] for each in wrong})
        if wrong:
            raise Damaged(wrong[0])

    def _fetch_small(self, folder: Path, wanted: Mapping[str, int]) -> list[str]:
        """Those that came otherwise than they are called."""
        self.go_on()
        body = json.dumps(list(wanted)).encode()
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

    def _fetch_large(self, folder: Path, wanted: Mapping[str, int]) -> list[str]:
        wrong = []
        for sha256, size in wanted.items():
            found = hashlib.sha256()

            def pieces(
                sha256: str = sha256, size: int = size, found: Any = found
            ) -> Iterator[bytes]:
                done = 0
                while done < size:
                    self.go_on()
                    query = f"offset={done}&size={min(PIECE, size - done)}"
                    path = f"{self._base}/contents/{sha256}?{query}"
                    data = self._client.call("GET", path).body
                    if not data:
                        return
                    found.update(data)
                    done += len(data)
                    yield data

            beside = _write(folder, f"{sha256}.part", pieces())
            if found.hexdigest() == sha256:
                beside.rename(folder / sha256)
            else:
                beside.unlink()
                wrong.append(sha256)
        return wrong


def _write(folder: Path, name: str, pieces: Sequence[bytes] | Iterator[bytes]) -> Path:
    """A file that is there whole, or not at all."""
    path = folder / name
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            for piece in pieces:
                file.write(piece)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _bundles(several: Sequence[str], sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
    bundle, size = dict[str, int](), 0
    for each in several:
        bundle[each] = sizes[each]
        size += sizes[each]
        if size > PIECE:
            yield bundle
            bundle, size = {}, 0
    if bundle:
        yield bundle
