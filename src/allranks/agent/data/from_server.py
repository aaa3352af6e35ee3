"""Download inputs that lie in the server's home, for a node that does not share its disk."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from allranks import folder_trees
from allranks.agent.transport.link import ServerAddress
from allranks.core.amounts import counted, size_text
from allranks.errors import AllranksError, Unreachable
from allranks.http_client import Client

# Bytes of files in one request, and files.
_PIECE, _COUNT = 4 << 20, 1000
# Seconds for an answer: the disk of the server's home may be busy.
_TIMEOUT = 60.0
# Seconds between calls to a server that does not answer, and between reports.
_AGAIN, _SAY = 0.5, 1.0


class _File(NamedTuple):
    name: str
    size: int
    mtime_ns: int
    mode: int


class _Piece(NamedTuple):
    """``size`` bytes of a file from ``offset`` on."""

    file: _File
    offset: int
    size: int


class Download:
    """Downloads inputs of a node. ``wait`` sleeps for some seconds and may raise; ``doing`` gets
    what it does."""

    def __init__(
        self,
        server: ServerAddress,
        node: int,
        wait: Callable[[float], None],
        doing: Callable[[str], None],
    ) -> None:
        self._client: Client = server.client(_TIMEOUT)
        self._base, self._wait, self._doing = f"/agent/v1/{node}/input", wait, doing

    def close(self) -> None:
        self._client.close()

    def fetch(self, name: str, path: Path) -> str:
        """Download the input to ``path``, a folder or a file, which appears when it is complete.
        Return a message for the record. Raises AllranksError, OSError and what ``wait`` raises."""
        listed = json.loads(self._call("GET", name, b""))
        files = [_File(*row) for row in listed["files"]]
        beside = path.with_name(f".{path.name}.part")
        if beside.is_dir():
            folder_trees.remove(beside)
        beside.parent.mkdir(parents=True, exist_ok=True)
        if not listed["is_file"]:
            beside.mkdir()
        total = sum(file.size for file in files)
        done = 0
        reported_at = time.monotonic()
        for pieces in _requests(files):
            self._fetch(name, pieces, beside, listed["is_file"])
            done += sum(piece.size for piece in pieces)
            if time.monotonic() > reported_at + _SAY:
                reported_at = time.monotonic()
                self._doing(f"downloads {name}: {size_text(done)} of {size_text(total)}")
        beside.rename(path)
        left_out = listed["left_out"]
        without = f"; left out, because they lie elsewhere: {left_out}" if left_out else ""
        amount = f"{counted(len(files), 'file')}, {size_text(total)}"
        return f"downloaded the input {name}: {amount}{without}"

    def _fetch(self, name: str, pieces: Sequence[_Piece], target: Path, is_file: bool) -> None:
        """Write pieces to the file ``target``, or to files below that folder."""
        rows = [[*piece.file[:3], piece.offset, piece.size] for piece in pieces]
        data = memoryview(self._call("POST", name, json.dumps(rows).encode()))
        if len(data) != sum(piece.size for piece in pieces):
            raise _changed(name)
        for file, offset, size in pieces:
            path = target if is_file else target / file.name
            if not offset:
                path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("r+b" if offset else "wb") as out:
                out.seek(offset)
                out.write(data[:size])
            data = data[size:]
            if offset + size == file.size:
                path.chmod(file.mode & 0o777 | 0o600)
                os.utime(path, ns=(file.mtime_ns, file.mtime_ns))

    def _call(self, method: str, name: str, body: bytes) -> Any:
        while True:
            self._wait(0.0)
            try:
                return self._client.call(method, f"{self._base}/{name}", body or None).body
            except Unreachable:
                self._wait(_AGAIN)


def _requests(files: Sequence[_File]) -> Iterator[list[_Piece]]:
    """All bytes of all files in their order, in groups for one request each."""
    group, size = list[_Piece](), 0
    for file in files:
        offsets = range(0, file.size, _PIECE) if file.size else (0,)
        for offset in offsets:
            piece = _Piece(file, offset, min(_PIECE, file.size - offset))
            if group and (size + piece.size > _PIECE or len(group) == _COUNT):
                yield group
                group, size = [], 0
            group.append(piece)
            size += piece.size
    if group:
        yield group


def _changed(name: str) -> AllranksError:
    return AllranksError(
        f"the input {name} changed while it was downloaded", hint="run the job again"
    )
