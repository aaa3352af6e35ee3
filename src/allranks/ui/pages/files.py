"""The files of a job, with previews of what people look at."""

from __future__ import annotations

import os.path
import re
import zipfile
from collections.abc import AsyncIterator
from typing import IO, Any, NamedTuple, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from allranks.api import routes
from allranks.errors import NotFound, UsageError
from allranks.ui import render, security
from allranks.ui.api import Session, named_job
from allranks.ui.pages.previews import AUDIO, IMAGES, ending, preview

# Files of a list, and pictures of a series.
_MOST, _PICTURES = 2000, 60
# So few files are shown without their folders.
_FEW = 8
# Where the agents keep the pictures that trackers logged.
_IMAGES = "artifacts/logs/images"
# Text and the number after it.
_NUMBERS = re.compile(r"(\D*)(\d{0,15})")
# The last number in a name.
_STEP = re.compile(r"(.*?)(\d+)(\D*\.\w+)", re.DOTALL)


async def page(request: Request) -> Response:
    """The files, and a preview of the one that is chosen."""
    session, job = await named_job(request)
    listing = await session.get(routes.job_files, job["name"])
    shown = _searched(listing, request)
    chosen = request.query_params.get("path")
    shown_file: dict[str, Any] | None = None
    if chosen is not None:
        size = next((each["size"] for each in listing if each["path"] == chosen), None)
        if size is None:
            message = f"{job['name']} has no file {render.printable(chosen)[:255]!r}"
            raise NotFound(message, hint="choose one from its list of files")
        shown_file = await preview(session, job["name"], chosen, size)
    folder = request.query_params.get("folder") or (chosen or "").rpartition("/")[0]
    folders: list[Folder] = []
    is_flat = bool(request.query_params.get("find")) or (not folder and len(listing) <= _FEW)
    if not is_flat:
        shown, folders = _in_folder(listing, folder)
    return render.page(
        request,
        "files.html",
        tab="files",
        job=job,
        files=shown[:_MOST],
        count=len(shown),
        chosen=chosen,
        preview=shown_file,
        is_flat=is_flat,
        above=_above(folder),
        folders=folders[:_MOST],
        media=[] if folder or is_flat else _in_folder(listing, _IMAGES)[1],
        series=_series(shown),
    )


class Folder(NamedTuple):
    """A folder with everything below it. ``name``: below the folder that lists it."""

    path: str
    name: str
    files: int
    size: int


class Picture(NamedTuple):
    path: str
    step: int


def _in_folder(files: list[Any], folder: str) -> tuple[list[Any], list[Folder]]:
    """The files directly in a folder, and its folders, each with those that are alone in it."""
    start = f"{folder}/" if folder else ""
    own: list[Any] = []
    below: dict[str, list[Any]] = {}
    for file in files:
        if file["path"].startswith(start):
            name, slash, _ = file["path"][len(start) :].partition("/")
            below.setdefault(name, []).append(file) if slash else own.append(file)
    folders = []
    for several in below.values():
        path = os.path.commonpath([file["path"].rpartition("/")[0] for file in several])
        size = sum(file["size"] for file in several)
        folders.append(Folder(path, path[len(start) :], len(several), size))
    return sorted(own, key=lambda file: _natural(file["path"])), sorted(
        folders, key=lambda one: _natural(one.path)
    )


def _natural(path: str) -> list[tuple[str, int]]:
    """A key by which `step_20` comes before `step_100`."""
    return [(text, int(number or 0)) for text, number in _NUMBERS.findall(path)]


def _above(folder: str) -> list[tuple[str, str]]:
    """The folders above and itself, each with its path."""
    parts = folder.split("/") if folder else []
    return [(part, "/".join(parts[: end + 1])) for end, part in enumerate(parts)]


def _series(files: list[Any]) -> list[tuple[str, list[Picture]]]:
    """Pictures whose names differ in their last number, which is their step, by that step."""
    series: dict[str, list[Picture]] = {}
    for file in files:
        name = render.printable(file["path"])
        if ending(name) in IMAGES and (number := _STEP.fullmatch(name)):
            before = number[1].rpartition("/")[2]
            series.setdefault(f"{before}…{number[3]}", []).append(
                Picture(file["path"], int(number[2][-15:]))
            )
    several = [(name, sorted(all_, key=_step)) for name, all_ in series.items() if len(all_) > 1]
    return [(name, all_[-_PICTURES:]) for name, all_ in sorted(several)]


def _step(picture: Picture) -> int:
    return picture.step


def _searched(files: list[Any], request: Request) -> list[Any]:
    part = request.query_params.get("find", "").lower()
    return [file for file in files if part in render.printable(file["path"]).lower()]


async def download(request: Request) -> Response:
    """The files as one archive, made while it is sent."""
    session: Session = request.state.session
    name = request.path_params["name"]
    files = _searched(await session.get(routes.job_files, name), request)
    headers = {"content-disposition": f'attachment; filename="{name}.zip"'}
    paths = [file["path"] for file in files]
    return StreamingResponse(
        _archive(session, name, paths), headers=headers, media_type="application/zip"
    )


class _Buffer:
    """What a ZipFile has written and nobody has taken yet."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def flush(self) -> None:
        pass

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)


async def _archive(session: Session, job: str, paths: list[str]) -> AsyncIterator[bytes]:
    buffer = _Buffer()
    # Not compressed: that would hold up other readers, and models and images hardly shrink.
    with zipfile.ZipFile(cast(IO[bytes], buffer), "w") as archive:
        for path in paths:
            entry = zipfile.ZipInfo(render.printable(path))
            with archive.open(entry, "w", force_zip64=True) as file:
                async with session.stream(routes.job_file, job, path) as answer:
                    async for piece in answer.aiter_bytes():
                        file.write(piece)
                        yield buffer.take()
    yield buffer.take()


async def content(request: Request) -> Response:
    """A file to save; with ``show`` an image or a page to look at, in which nothing runs."""
    session: Session = request.state.session
    path = request.query_params.get("path", "")
    if not path:
        raise UsageError("no file is named", where="path")
    stream = session.stream(routes.job_file, request.path_params["name"], path)
    answer = await stream.__aenter__()

    async def pieces() -> Any:
        try:
            async for piece in answer.aiter_raw():
                yield piece
        finally:
            await stream.__aexit__(None, None, None)

    headers = {"content-security-policy": security.SANDBOX}
    if "content-length" in answer.headers:
        headers["content-length"] = answer.headers["content-length"]
    kind = "application/octet-stream"
    if request.query_params.get("show"):
        kind = _kind(path)
    if kind == "application/octet-stream":
        name = quote(path.rpartition("/")[2], errors="surrogateescape")
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{name}"
    return StreamingResponse(pieces(), headers=headers, media_type=kind)


def _kind(path: str) -> str:
    end = ending(path)
    if end in IMAGES:
        return f"image/{IMAGES[end]}"
    if end in AUDIO:
        return f"audio/{AUDIO[end]}"
    return {"html": "text/html", "svg": "image/svg+xml"}.get(end, "application/octet-stream")
