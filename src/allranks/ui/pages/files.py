"""The files of a job, with previews of what people look at."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import zipfile
from collections.abc import AsyncIterator
from typing import IO, TYPE_CHECKING, Any, cast
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from allranks.errors import NotFound, UsageError
from allranks.ui import render, security
from allranks.ui.api import Session, file_path, job_path

if TYPE_CHECKING:
    from allranks.api.jobs import FileAnswer
    from allranks.api.metrics import ShownJob

# Files of a list, bytes of a preview, rows of a table.
_MOST, _PREVIEW, _ROWS = 2000, 256 << 10, 200
_IMAGES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
_TABLES = {"csv": ",", "tsv": "\t"}


async def page(request: Request) -> Response:
    """The files, and a preview of the one that is chosen."""
    session: Session = request.state.session
    job: ShownJob = await session.get(job_path(request.path_params["name"]))
    listing: list[FileAnswer] = await session.get(job_path(job["name"], "files"))
    shown = _searched(listing, request)
    chosen = request.query_params.get("path")
    preview: dict[str, Any] | None = None
    if chosen is not None:
        size = next((each["size"] for each in listing if each["path"] == chosen), None)
        if size is None:
            raise NotFound(f"{job['name']} has no file {render.printable(chosen)[:255]!r}")
        preview = await _preview(session, job["name"], chosen, size)
    return render.page(
        request,
        "files.html",
        tab="files",
        job=job,
        files=shown[:_MOST],
        count=len(shown),
        chosen=chosen,
        preview=preview,
    )


def _searched(files: list[Any], request: Request) -> list[Any]:
    part = request.query_params.get("find", "").lower()
    return [each for each in files if part in render.printable(each["path"]).lower()]


async def download(request: Request) -> Response:
    """The files as one archive, made while it is sent."""
    session: Session = request.state.session
    name = request.path_params["name"]
    files = _searched(await session.get(job_path(name, "files")), request)
    headers = {"content-disposition": f'attachment; filename="{name}.zip"'}
    paths = [each["path"] for each in files]
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
                async with session.stream("GET", file_path(job, path)) as answer:
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
    stream = session.stream("GET", file_path(request.path_params["name"], path))
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
    ending = path.rpartition(".")[2].lower()
    if ending in _IMAGES:
        return f"image/{_IMAGES[ending]}"
    return {"html": "text/html", "svg": "image/svg+xml"}.get(ending, "application/octet-stream")


async def _preview(session: Session, job: str, path: str, size: int) -> dict[str, Any]:
    """What to show of a file: an image, a table, JSON, a page, text, or that it is none."""
    ending = path.rpartition(".")[2].lower()
    if ending in _IMAGES or ending == "svg":
        return {"kind": "image", "size": size}
    if ending == "html":
        return {"kind": "page", "size": size}
    if size == 0:
        return {"kind": "text", "text": "", "size": 0, "cut": False}
    async with session.stream("GET", file_path(job, path), span=f"bytes=0-{_PREVIEW - 1}") as got:
        data = await got.aread()
    cut = size > len(data)
    if b"\0" in data[:4096]:
        return {"kind": "binary", "size": size}
    text = data.decode(errors="replace")
    if ending in _TABLES:
        rows = csv.reader(io.StringIO(text), delimiter=_TABLES[ending])
        try:
            table = [row for row, _ in zip(rows, range(_ROWS + 1), strict=False)]
            return {"kind": "table", "rows": table, "size": size, "cut": cut or len(table) > _ROWS}
        except csv.Error:
            pass
    if ending == "json" and not cut:
        with contextlib.suppress(ValueError):
            text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return {"kind": "text", "text": text, "size": size, "cut": cut}
