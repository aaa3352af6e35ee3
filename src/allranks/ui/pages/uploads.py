"""Upload files of the reader's computer as a version of a data asset."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path, PurePosixPath
from urllib.parse import quote

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from allranks.api import routes
from allranks.errors import UsageError
from allranks.sdk.upload.inputs import How
from allranks.ui import render
from allranks.ui.api import Session
from allranks.ui.messages import leave


async def upload(request: Request) -> Response:
    """The form (GET), or the upload (POST). The server accepts 64 MiB in one request."""
    request.state.person.require_member()
    if request.method == "GET":
        return render.page(request, "upload.html", command="allranks data upload FOLDER")
    form = await request.form()
    session: Session = request.state.session
    files = [file for file in form.getlist("files") if isinstance(file, UploadFile)]
    files = [file for file in files if file.filename]
    name = str(form.get("name", "")).strip()
    if not name or not files:
        message = "a name and at least one file are needed"
        raise UsageError(message, where="upload", hint="fill in the name, and choose files")
    with tempfile.TemporaryDirectory(prefix="allranks-upload-") as folder:
        path, is_file = await run_in_threadpool(written, Path(folder), files)
        made = await run_in_threadpool(How().upload, str(path), session.client)
    kind = "uri_file" if is_file else "uri_folder"
    await session.call(routes.create_data, body={"name": name, "type": kind, "path": made.path})
    answer = RedirectResponse(f"/ui/assets/data/{quote(name, safe='')}", 303)
    leave(answer, "upload", [name])
    return answer


def written(folder: Path, files: list[UploadFile]) -> tuple[Path, bool]:
    """The uploaded files in a folder, or the only one that came without a folder. Raises
    UsageError."""
    root = folder / "data"
    paths = [_place(str(file.filename)) for file in files]
    for file, place in zip(files, paths, strict=True):
        target = root / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as copy:
                shutil.copyfileobj(file.file, copy)
        except OSError as error:  # a name twice, a file where a folder is, a name too long
            reason = (error.strerror or str(error)).lower()
            message = f"{str(place)[:80]!r} cannot be kept: {reason}"
            hint = "give each file a name of its own, or use `allranks data upload`"
            raise UsageError(message, where="files", hint=hint) from None
    if len(files) == 1 and len(paths[0].parts) == 1:
        return root / paths[0], True
    first = paths[0].parts[0]
    whole = all(len(path.parts) > 1 and path.parts[0] == first for path in paths)
    return (root / first if whole else root), False


def _place(name: str) -> PurePosixPath:
    """Where a file goes below a folder. Raises UsageError for a name that leads out of it."""
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in name:
        message = f"{name[:80]!r} is not a name of a file in a folder"
        raise UsageError(message, where="files", hint="rename it: no `..`, and no `/` in front")
    return path
