"""Routes for the files of a job's record: which there are, one of them, many small, checksums.

A live job writes while it is read. What is small is told as it was in one moment; what is large
is fetched up to the size that its reader was told, and then held against a checksum.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from starlette.convertors import Convertor, register_url_convertor

from allranks.errors import NotFound, UsageError
from allranks.server.services import Services, services


class _Rest(Convertor[str]):
    """The rest of an address; Starlette's own `path` ends at a newline, which a name may hold."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


def _path(request: Request) -> str:
    """The path of the file, byte for byte: in the address as decoded for the routes, what is not
    UTF-8 is lost."""
    return os.fsdecode(unquote_to_bytes(request.scope["raw_path"].split(b"/", 6)[6]))


register_url_convertor("rest", _Rest())

With = Annotated[Services, Depends(services)]
Named = Annotated[str, Depends(_path)]
router = APIRouter(prefix="/api/v1/jobs/{name}")

# The most that one bundle may hold: it is put together in memory.
_BUNDLE = 8 << 20
# After so many bytes a reader of a checksum hears that it is still being worked on.
_BEAT = 256 << 20


@router.get("/files")
def files(name: str, with_: With) -> Response:
    """Everything in the job's record that can be downloaded, by path; ``mtime_ns`` as `stat`."""
    with_.records.get(name)
    root = str(with_.home.jobs / name)
    found = [
        {"path": path[len(root) + 1 :], "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        for path, status in _below(root)
    ]
    # By hand: a name that is not UTF-8 is written as the escapes that make it whole again.
    return Response(json.dumps(found), media_type="application/json")


@router.get("/files/{_:rest}")
def file(name: str, path: Named, with_: With) -> Response:
    """One file, or the ranges of it that were asked for."""
    return FileResponse(_found(name, path, with_))


@router.post("/bundle")
def bundle(name: str, with_: With, wanted: Annotated[list[dict[str, Any]], Body()]) -> Response:
    """Many small files ({"path", "size"}), each up to that size: per file a line of JSON
    {"size", "mtime_ns", "crc32"} and as many bytes; {"size": null} for one that is gone."""
    if sum(int(each["size"]) for each in wanted) > _BUNDLE:
        raise UsageError(f"a bundle holds {_BUNDLE} bytes at most", hint="ask for fewer at once")
    with_.records.get(name)
    root = (with_.home.jobs / name).resolve()
    pieces = [piece for each in wanted for piece in _framed(root, each["path"], int(each["size"]))]
    return Response(b"".join(pieces), media_type="application/octet-stream")


@router.get("/checksums/{_:rest}")
def checksum(name: str, path: Named, with_: With, size: int) -> Response:
    """Of the first ``size`` bytes, or as many as there are, as the last line, in JSON: {"crc32",
    "bytes"}, and the file's "size" and "mtime_ns". Empty lines before it are signs of life."""
    file = _found(name, path, with_).open("rb")
    return StreamingResponse(_summed(file, size), media_type="application/x-ndjson")


def _found(name: str, path: str, with_: Services) -> Path:
    with_.records.get(name)
    root = (with_.home.jobs / name).resolve()
    found = Path(root, path).resolve()
    if not found.is_relative_to(root) or not found.is_file():
        raise NotFound(f"the job has no file {path!r}", hint=f"allranks job show {name}")
    return found


def _below(folder: str) -> Iterator[tuple[str, os.stat_result]]:
    """The regular files below a folder in order, without what a live job removes meanwhile."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda each: each.name):
            if entry.is_dir(follow_symlinks=False):
                yield from _below(entry.path)
            elif entry.is_file(follow_symlinks=False):
                with contextlib.suppress(FileNotFoundError):
                    yield entry.path, entry.stat(follow_symlinks=False)


def _framed(root: Path, path: str, size: int) -> tuple[bytes, bytes]:
    found = Path(root, path).resolve()
    if not found.is_relative_to(root) or not found.is_file():
        return b'{"size": null}\n', b""
    with found.open("rb", buffering=0) as file:
        # The time first: what is written from here on makes the file newer than was told.
        mtime_ns = os.fstat(file.fileno()).st_mtime_ns
        data = file.read(size)
    told = {"size": len(data), "mtime_ns": mtime_ns, "crc32": zlib.crc32(data)}
    return json.dumps(told).encode() + b"\n", data


def _summed(file: BinaryIO, size: int) -> Iterator[bytes]:
    with file:
        status = os.fstat(file.fileno())
        crc, done = 0, 0
        while piece := file.read(min(1 << 20, size - done)):
            crc = zlib.crc32(piece, crc)
            done += len(piece)
            if done % _BEAT == 0:
                yield b"\n"
    told = {"size": status.st_size, "mtime_ns": status.st_mtime_ns, "crc32": crc, "bytes": done}
    yield json.dumps(told).encode() + b"\n"
