"""Routes for the files of a job's record, and of models: one of them, many small, checksums; and
which there are in a record.

A live job writes while it is read. What is small is told as it was in one moment; what is large
is fetched up to the size that its reader was told, and then held against a checksum.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, BinaryIO, NamedTuple
from urllib.parse import unquote_to_bytes

from fastapi import APIRouter, Body, Depends, Request, Response
from fastapi.responses import FileResponse, StreamingResponse
from pydantic import BaseModel
from starlette.convertors import Convertor, register_url_convertor

from allranks.errors import NotFound, UsageError
from allranks.server.assets.job_files import below
from allranks.server.dependencies import Services, services
from allranks.server.http.request_limits import Count
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.files.state_folders import CONTENT


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
router = APIRouter(prefix="/api/v1")
_JOB, _MODEL, _STATE = "/jobs/{name}", "/models/{reference}", "/states/{state}"


class _Place(NamedTuple):
    """The folder of a job, of a version of a model, or of a state's contents, each under its
    SHA-256; and what a person calls that."""

    root: Path
    name: str


def _place(request: Request, with_: With) -> _Place:
    named = request.path_params
    if "reference" in named:
        versions, asset = with_.models.versions, asset_of(named["reference"], "model")
        return _Place(versions.files(versions.row(asset)).resolve(), f"the model {asset}")
    if "state" in named:
        folder = with_.states.find(named["state"]).folder
        return _Place((folder / CONTENT).resolve(), f"the state {folder.name}")
    name = str(named["name"])
    with_.records.get(name)
    return _Place((with_.home.jobs / name).resolve(), name)


Place = Annotated[_Place, Depends(_place)]

# The most that one bundle may hold: it is put together in memory.
_BUNDLE = 8 << 20
# After so many bytes a reader of a checksum hears that it is still being worked on.
_BEAT = 256 << 20


class Piece(BaseModel):
    path: str
    size: Count


@router.get(_JOB + "/files")
def files(place: Place) -> Response:
    """Everything in the job's record that can be downloaded, by path; ``mtime_ns`` as `stat`."""
    root = str(place.root)
    found = [
        {"path": path[len(root) + 1 :], "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        for path, status in below(root)
        if stat.S_ISREG(status.st_mode)
    ]
    # By hand: a name that is not UTF-8 is written as the escapes that make it whole again.
    return Response(json.dumps(found), media_type="application/json")


@router.get(_JOB + "/links")
def links(place: Place) -> Response:
    """The paths of the symbolic links in the job's record: they are not followed, nor told of by
    ``files``."""
    root = str(place.root)
    found = [p[len(root) + 1 :] for p, status in below(root) if stat.S_ISLNK(status.st_mode)]
    return Response(json.dumps(found), media_type="application/json")


@router.get(_JOB + "/files/{_:rest}")
@router.get(_MODEL + "/files/{_:rest}")
@router.get(_STATE + "/files/{_:rest}")
def file(place: Place, path: Named) -> Response:
    """One file, or the ranges of it that were asked for."""
    return FileResponse(_found(place, path))


@router.post(_JOB + "/bundle")
@router.post(_MODEL + "/bundle")
@router.post(_STATE + "/bundle")
def bundle(place: Place, wanted: Annotated[list[Piece], Body()]) -> Response:
    """Many small files ({"path", "size"}), each up to that size: per file a line of JSON
    {"size", "mtime_ns", "crc32"} and as many bytes; {"size": null} for one that is gone."""
    if sum(each.size for each in wanted) > _BUNDLE:
        raise UsageError(f"a bundle holds {_BUNDLE} bytes at most", hint="ask for fewer at once")
    pieces = [p for each in wanted for p in _framed(place.root, each.path, each.size)]
    return Response(b"".join(pieces), media_type="application/octet-stream")


@router.get(_JOB + "/checksums/{_:rest}")
@router.get(_MODEL + "/checksums/{_:rest}")
@router.get(_STATE + "/checksums/{_:rest}")
def checksum(place: Place, path: Named, size: Count) -> Response:
    """Of the first ``size`` bytes, or as many as there are, as the last line, in JSON: {"crc32",
    "bytes"}, and the file's "size" and "mtime_ns". Empty lines before it are signs of life."""
    file = _found(place, path).open("rb")
    return StreamingResponse(_summed(file, size), media_type="application/x-ndjson")


def _found(place: _Place, path: str) -> Path:
    found = _within(place.root, path)
    if found is None:
        hint = "it may be gone by now"
        raise NotFound(f"there is no file {path[:255]!r}", where=place.name, hint=hint)
    return found


def _within(root: Path, path: str) -> Path | None:
    """The file, unless it lies elsewhere: jobs may leave links to anywhere."""
    try:
        found = Path(root, path).resolve()
        return found if found.is_relative_to(root) and found.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None  # no name that a file can have, or links in a ring


def _framed(root: Path, path: str, size: int) -> tuple[bytes, bytes]:
    found = _within(root, path)
    if found is None:
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
