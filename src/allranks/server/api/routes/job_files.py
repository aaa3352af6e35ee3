"""Routes for files of jobs, models and states: lists, single files, bundles of small files, and
checksums.

A live job writes while its files are read. Small files are sent as consistent snapshots; large ones
are downloaded up to the listed size and then verified by checksum.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import zlib
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, NamedTuple
from urllib.parse import unquote_to_bytes

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from allranks import folder_trees
from allranks.agent.data.file_entry import FileEntry
from allranks.api.jobs import BundleHead, ChecksumAnswer, FileAnswer, FolderAnswer, LinkAnswer
from allranks.errors import NotFound, UsageError
from allranks.server.arguments import BODY, Given
from allranks.server.assets.job_files import UNLISTED, below
from allranks.server.assets.versions import absent_is_not_found
from allranks.server.dependencies import Services, ServicesDep
from allranks.server.http.content import LINES, Content
from allranks.server.http.request_limits import Count
from allranks.server.parents.pipeline.view import output_folders
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.files.state_folders import CONTENT

if TYPE_CHECKING:
    from allranks.agent.data.stored_data import StoredData
else:
    StoredData = object  # it imports obstore; routes read their annotations


def path_of(request: Request) -> str:
    """The path of the file from the raw URL; decoding for the routes loses bytes that are not
    UTF-8."""
    return os.fsdecode(unquote_to_bytes(request.scope["raw_path"].split(b"/", 6)[6]))


Named = Annotated[str, Given(path_of)]


class _Place(NamedTuple):
    """The folder of a job, of a version of a model or of data, or of a state's contents (named by
    SHA-256), with its name for messages. Data may be a single file. A pipeline has ``folders`` of
    its steps' jobs instead, by the name that they have in it. The folders ``unlisted`` in it are
    left out of lists. ``lists_links``: a link to a file of the list is in the list, too."""

    root: Path
    name: str
    folders: Mapping[str, Path] = {}
    unlisted: tuple[str, ...] = ()
    lists_links: bool = False

    def listed(self, too_long: list[str] | None = None) -> Iterator[tuple[str, os.stat_result]]:
        """What ``below`` lists, by name; what has too long a path is only named."""
        names = [] if too_long is None else too_long
        if self.root.is_file():
            yield self.root.name, self.root.stat()
            return
        for name, folder in (self.folders or {"": self.root}).items():
            start = len(str(folder)) + 1
            left_out = partial(_add_name, names, name, start)
            for path, status in below(str(folder), self.unlisted, left_out):
                yield f"{name}{path[start:]}", status

    def path(self, name: str) -> Path:
        """Where the file of a name that ``listed`` gives is."""
        for start, folder in self.folders.items():
            if name.startswith(start):
                return folder / name[len(start) :]
        return self.root / name

    def find(self, path: str) -> Path | None:
        """The file of that name, or None."""
        if self.root.is_file():
            return self.root if path == self.root.name else None
        if not self.folders:
            return _within(self.root, path)
        for name, folder in self.folders.items():
            if path.startswith(name):
                return _within(folder.resolve(), path[len(name) :])
        return None

    def name_of(self, file: Path | None) -> str:
        """The name that ``listed`` gives to a file that ``find`` has found; empty if none."""
        for name, folder in (self.folders or {"": self.root}).items():
            if file is not None and file.is_relative_to(root := folder.resolve()):
                return f"{name}{file.relative_to(root)}"
        return ""


def _place(request: Request, services: ServicesDep) -> _Place:
    named = request.path_params
    if "reference" in named:
        versions, asset = services.models.versions, asset_of(named["reference"], "model")
        return _Place(versions.files(versions.row(asset)).resolve(), f"the model {asset}")
    if "version" in named:
        return _Place(_of_data(services, named["version"]), f"the data asset {named['version']}")
    if "state" in named:
        folder = services.states.find(named["state"]).folder
        return _Place((folder / CONTENT).resolve(), f"the state {folder.name}")
    row = services.records.answering(str(named["name"]))
    folders = output_folders(row, services) if row.type == "pipeline" else {}
    root = (services.home.jobs / row.name).resolve()
    return _Place(root, row.name, folders, UNLISTED, lists_links=True)


def _stored(request: Request, services: ServicesDep) -> StoredData | None:
    """The data asset, if it is in the object store of a datastore."""
    reference = request.path_params.get("version")
    if reference is None:
        return None
    with absent_is_not_found():
        row = services.datastores.row(asset_of(reference, "data"))
        place = services.datastores.locate(f"azureml:{row.name}:{row.version}", "path")
    if not place.datastore:
        return None
    from allranks.agent.data.stored_data import StoredData  # lazy: obstore

    return StoredData(place, services.datastores.account(place.datastore))


def _of_data(services: Services, reference: str) -> Path:
    """Where a version of a data asset lies on this machine. Raises NotFound for data elsewhere, and
    for what people may not read by other routes."""
    with absent_is_not_found():
        row = services.datastores.row(asset_of(reference, "data"))
        place = services.datastores.locate(f"azureml:{row.name}:{row.version}", "path")
    real = Path(os.path.realpath(place.path or "/"))
    if not place.path or not _is_in_store(real, services):
        raise NotFound(
            f"{row.name}:{row.version} is not in the server's own store",
            where=place.uri or place.path or None,
            hint="read it as the input of a job, or with its store's own tool",
        )
    if not real.exists():
        hint = "it was removed from the datastore"
        raise NotFound(
            f"the files of {row.name}:{row.version} are gone", where=str(real), hint=hint
        )
    return real


def _is_in_store(path: Path, services: Services) -> bool:
    """Whether it is in a datastore that is a folder here, or of a job or a model."""
    stores = services.datastores.all().values()
    folders = [services.home.jobs, services.home.models]
    folders += [Path(store.path) for store in stores if store.type == "file" and store.path]
    roots = (Path(os.path.realpath(folder)) for folder in folders)
    return any(path.is_relative_to(root) for root in roots if root != Path("/"))


def _place_or_stored(request: Request, services: ServicesDep) -> _Place | StoredData:
    return _stored(request, services) or _place(request, services)


Place = Annotated[_Place | StoredData, Given(_place_or_stored)]

# The most bytes of a bundle, which is assembled in memory.
_BUNDLE = 8 << 20
# A checksum response sends an empty line every so many bytes, to keep the connection alive.
_BEAT = 256 << 20


_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


class Piece(BaseModel):
    path: str
    size: Count


def _add_name(names: list[str], name: str, start: int, path: str) -> None:
    names.append(f"{name}{path[start:]}")


def files(
    place: Place, services: ServicesDep, too_long: bool = False, folders: bool = False
) -> Annotated[Response, Content(list[FileAnswer] | list[FolderAnswer] | list[str])]:
    """All files in the job's folder, with path, size and ``mtime_ns``; or the paths of files and
    folders that are ``too_long`` to be read; or the ``folders``."""
    left_out: list[str] = []
    listing: list[FileAnswer]
    if isinstance(place, _Place):
        services.require_unchanged([str(place.root)])
    if folders:
        listed: list[FolderAnswer] = [
            {"path": path, "mtime_ns": status.st_mtime_ns}
            for path, status in _listed(place)
            if stat.S_ISDIR(status.st_mode)
        ]
        return Response(json.dumps(listed), media_type="application/json")
    if isinstance(place, _Place):
        listing, _ = _files_and_others(place, left_out)
    else:
        listing = [
            {"path": file.name, "size": file.size, "mtime_ns": _mtime_ns(file)}
            for file in place.files()
        ]
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(left_out if too_long else listing), media_type="application/json")


def links(
    place: Place, targets: bool = False
) -> Annotated[Response, Content(list[str] | list[LinkAnswer])]:
    """The paths of symbolic links and special files in the job's folder, which ``files`` does not
    list; or with their ``targets``."""
    paths = _files_and_others(place)[1] if isinstance(place, _Place) else []
    if targets and isinstance(place, _Place):
        answer = [_link(place, path) for path in paths]
        return Response(json.dumps(answer), media_type="application/json")
    return Response(json.dumps(paths), media_type="application/json")


def _files_and_others(
    place: _Place, too_long: list[str] | None = None
) -> tuple[list[FileAnswer], list[str]]:
    """The files with the links to one of them, and the paths of other links and special files."""
    listed = dict(place.listed(too_long))
    others = [path for path, status in listed.items() if not _is_copied(status)]
    files: dict[str, FileAnswer] = {
        path: {"path": path, "size": status.st_size, "mtime_ns": status.st_mtime_ns}
        for path, status in listed.items()
        if stat.S_ISREG(status.st_mode)
    }
    links: dict[str, FileAnswer] = {}
    for path in others if place.lists_links else ():
        if (target := files.get(place.name_of(place.find(path)))) is not None:
            links[path] = {**target, "path": path, "link": target["path"]}
    files |= links
    return (
        [files[path] for path in listed if path in files],
        [path for path in others if path not in files],
    )


def data_links(place: Place) -> Annotated[Response, Content(list[LinkAnswer])]:
    """The symbolic links of a data asset, and its special files, which have no target; an object
    store has none."""
    others = [path for path, status in _listed(place) if not _is_copied(status)]
    answer = [_link(place, path) for path in others if isinstance(place, _Place)]
    return Response(json.dumps(answer), media_type="application/json")


def _link(place: _Place, path: str) -> LinkAnswer:
    """Where a link says that it leads, relative to its folder if that is in the same place."""
    target = ""
    with contextlib.suppress(OSError):  # a special file, or it was removed
        target = os.readlink(place.path(path))
        if target.startswith(f"{place.root}/"):
            target = os.path.relpath(target, (place.root / path).parent)
    return {"path": path, "target": target}


def _listed(place: _Place | StoredData) -> Iterator[tuple[str, os.stat_result]]:
    return place.listed() if isinstance(place, _Place) else iter(())


def _is_copied(status: os.stat_result) -> bool:
    return stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)


def file(place: Place, path: Named, request: Request) -> Response:
    """One file, or the requested ranges of it; of an object store one range."""
    if not isinstance(place, _Place):
        entry = _found(place, path)
        span = _RANGE.fullmatch(request.headers.get("range") or "")
        start, end = (int(span[1]), int(span[2]) + 1) if span else (0, entry.size)
        end = min(end, entry.size)
        if span and start >= end:
            return Response(status_code=416)
        head = {"content-length": str(end - start)}
        if span:
            head["content-range"] = f"bytes {start}-{end - 1}/{entry.size}"
        return StreamingResponse(
            place.read(entry, start, end),
            206 if span else 200,
            head,
            media_type="application/octet-stream",
        )
    return _OpenedFile(_existing(place, path))


def bundle(place: Place, requested: Annotated[list[Piece], BODY]) -> Response:
    """Many small files ({"path", "size"}), each up to that size. For each a line of JSON,
    {"size", "mtime_ns", "crc32"}, then its bytes; {"size": null} for a missing file."""
    if sum(each.size for each in requested) > _BUNDLE:
        raise UsageError(f"a bundle is limited to {_BUNDLE} bytes", hint="request fewer files")
    if isinstance(place, _Place):
        pieces = [p for each in requested for p in _framed(place, each.path, each.size)]
    else:
        # Stores answer slowly, and many requests at once.
        with ThreadPoolExecutor(16) as pool:
            framed = pool.map(lambda it: _framed_stored(place, it.path, it.size), requested)
            pieces = [piece for pair in framed for piece in pair]
    return Response(b"".join(pieces), media_type="application/octet-stream")


def checksum(
    place: Place, path: Named, size: Count
) -> Annotated[Response, Content(ChecksumAnswer, LINES)]:
    """The checksum of at most the first ``size`` bytes. The last line is JSON: {"crc32", "bytes"}
    and the file's "size" and "mtime_ns"; empty lines before it keep the connection alive."""
    if isinstance(place, _Place):
        lines = _summed(_opened(_existing(place, path)), size)
    else:
        lines = _summed_stored(place, _found(place, path), size)
    return StreamingResponse(lines, media_type="application/x-ndjson")


def _opened(path: Path) -> BinaryIO:
    """Open a file that ``find`` has resolved, which the job may have replaced by a link since."""
    return folder_trees.open_file(path, below="/", buffering=0)


class _OpenedFile(FileResponse):
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with _opened(Path(self.path)) as file:
            self.path = f"/proc/self/fd/{file.fileno()}"
            await super().__call__(scope, receive, send)


def _existing(place: _Place, path: str) -> Path:
    target = place.find(path)
    if target is None:
        raise _absent(place, path)
    return target


def _found(place: StoredData, path: str) -> FileEntry:
    entry = place.find(path)
    if entry is None:
        raise _absent(place, path)
    return entry


def _absent(place: _Place | StoredData, path: str) -> NotFound:
    hint = "it may have been deleted"
    return NotFound(f"file {path[:255]!r} not found", where=place.name, hint=hint)


def _mtime_ns(file: FileEntry) -> int:
    """In whole seconds: listings of stores have fractions, answers do not."""
    return int(file.mtime) * 10**9


def _framed_stored(place: StoredData, path: str, size: int) -> tuple[bytes, bytes]:
    entry = place.find(path)
    if entry is None:
        return b'{"size": null}\n', b""
    data = b"".join(place.read(entry, 0, min(size, entry.size)))
    head: BundleHead = {"size": len(data), "mtime_ns": _mtime_ns(entry), "crc32": zlib.crc32(data)}
    return json.dumps(head).encode() + b"\n", data


def _summed_stored(place: StoredData, file: FileEntry, size: int) -> Iterator[bytes]:
    crc, size = 0, min(size, file.size)
    for piece in place.read(file, 0, size):
        crc = zlib.crc32(piece, crc)
        yield b"\n"
    checksum: ChecksumAnswer = {
        "size": file.size,
        "mtime_ns": _mtime_ns(file),
        "crc32": crc,
        "bytes": size,
    }
    yield json.dumps(checksum).encode() + b"\n"


def _within(root: Path, path: str) -> Path | None:
    """The file, or None if it is outside of ``root``: jobs may leave links to anywhere."""
    try:
        target = Path(root, path).resolve()
        return target if target.is_relative_to(root) and target.is_file() else None
    except (OSError, ValueError, RuntimeError):
        return None  # an impossible file name, or circular links


def _framed(place: _Place, path: str, size: int) -> tuple[bytes, bytes]:
    target = place.find(path)
    if target is None:
        return b'{"size": null}\n', b""
    with _opened(target) as file:
        # Read before the content: later writes make the file newer than reported.
        mtime_ns = os.fstat(file.fileno()).st_mtime_ns
        data = file.read(size)
    head: BundleHead = {"size": len(data), "mtime_ns": mtime_ns, "crc32": zlib.crc32(data)}
    return json.dumps(head).encode() + b"\n", data


def _summed(file: BinaryIO, size: int) -> Iterator[bytes]:
    with file:
        status = os.fstat(file.fileno())
        crc, done = 0, 0
        while piece := file.read(min(1 << 20, size - done)):
            crc = zlib.crc32(piece, crc)
            done += len(piece)
            if done % _BEAT == 0:
                yield b"\n"
    checksum: ChecksumAnswer = {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "crc32": crc,
        "bytes": done,
    }
    yield json.dumps(checksum).encode() + b"\n"
