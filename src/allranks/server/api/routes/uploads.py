"""Routes for data of people's own machines: its content as blobs, and the upload made of them."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Annotated, Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from allranks.api.assets import Challenge, PartAnswer, Proof, UploadAnswer, WrittenPart
from allranks.core.data.upload_manifest import FOLDER
from allranks.errors import TooLarge, UsageError
from allranks.server.arguments import BODY
from allranks.server.assets.datastores import DEFAULT
from allranks.server.dependencies import ServicesDep
from allranks.server.http.content import Content
from allranks.server.http.large_body import written
from allranks.server.http.request_limits import FEW, Count
from allranks.store.files import same_data

# The most bytes of a pack, which is held in memory.
_PACK = 16 << 20
# Seals the answers that are expected, so that nothing need be kept until they come.
_KEY = secrets.token_bytes(32)


async def pack(services: ServicesDep, request: Request) -> None:
    """Store many small blobs: a line of JSON, [[digest, size], …], then their bytes."""
    if int(request.headers.get("content-length") or _PACK + 1) > _PACK:
        raise TooLarge(f"a pack is limited to {_PACK} bytes", hint="send several")
    await run_in_threadpool(services.incoming.unpack, await request.body())


def part(digest: str, services: ServicesDep, size: Count = 0, sample: str = "") -> PartAnswer:
    """How much of a blob that is sent in pieces is here. With a `size` and a `sample`: whether some
    complete blob has them, so that this one may be here already."""
    alike = bool(sample) and services.incoming.may_have(size, sample)
    free = shutil.disk_usage(services.home.blobs).free
    return {"size": services.incoming.size(digest), "free": free, "alike": alike}


def adopt_part(digest: str, early: str, services: ServicesDep) -> PartAnswer:
    """Go on with the part `early` as a part of this blob: what is sent before its digest is
    computed has another name. Answers as `GET` does."""
    services.incoming.adopt(digest, early)
    return part(digest, services)


async def write_part(
    digest: str, offset: Count, size: Count, services: ServicesDep, request: Request
) -> WrittenPart:
    """Write the next piece of a blob of ``size`` bytes. Before it may be zeros that are not sent.
    409 if another upload of the same blob has come further."""
    complete = False

    async def write(piece: memoryview, at: int) -> None:
        nonlocal complete
        complete = await run_in_threadpool(services.incoming.write, digest, at, piece, size)

    await written(request, offset, write)
    return {"complete": complete}


def make(data: Annotated[dict[str, Any], BODY], services: ServicesDep) -> UploadAnswer:
    """Make an upload of blobs that are here, by the digest of its `manifest`; 404 missing_data if
    one is not. Twice is once. With the name of a `datastore`, an object store, it is put there: for
    a few seconds, then `left` says how much is not there yet."""
    digest = data.get("manifest")
    if not isinstance(digest, str):
        hint = "upload the manifest as a blob first, and name it by its SHA-256"
        raise UsageError("`manifest` is the digest of a blob", where="manifest", hint=hint)
    left, datastore = 0, data.get("datastore")
    if datastore:
        from allranks.server.assets.stored_uploads import put  # lazy: obstore

        datastore = str(datastore)
        made, left = put(services.datastores, services.blobs, datastore, digest)
        path = f"{services.datastores.upload_folder(datastore)}/{digest}/{made.name}"
    else:
        made = services.uploads.make(digest)
        path = f"{FOLDER}/{digest}/files/{made.name}"
    path = f"azureml://datastores/{datastore or DEFAULT}/paths/{path}"
    return {"path": path, "files": len(made.files), "size": made.size, "left": left}


def challenges(
    paths: Annotated[list[str], BODY, FEW], services: ServicesDep
) -> Annotated[Response, Content(list[Challenge | None])]:
    """For each path a `Challenge`; null where the server sees no data that people may read."""
    answer = [_challenge(path, services) for path in paths]
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(answer), media_type="application/json")


def proofs(answers: Annotated[list[Proof], BODY, FEW]) -> list[bool]:
    """Whether each answer to a challenge proves that its sender sees the same data."""
    return [
        hmac.compare_digest(
            _seal(item["nonce"], item["digest"]).encode(),
            item["sealed"].encode(errors="surrogatepass"),
        )
        for item in answers
    ]


def _challenge(path: str, services: ServicesDep) -> Challenge | None:
    try:
        real = os.path.realpath(path)
        if not os.path.isabs(path) or not _may_be_read(Path(real), services):
            return None
        nonce, ranges = secrets.token_hex(16), same_data.pick(real)
        digest = same_data.fingerprint(real, nonce, ranges)
    except (OSError, ValueError):
        return None
    return {"nonce": nonce, "ranges": [(*item,) for item in ranges], "sealed": _seal(nonce, digest)}


def _may_be_read(path: Path, services: ServicesDep) -> bool:
    """Whether it is data: of the home only what other routes show, and nothing of the system."""
    home = services.home
    shown = (home.data, home.jobs, home.models)
    if path.is_relative_to(os.path.realpath(home.root)):
        return any(path.is_relative_to(os.path.realpath(item)) for item in shown)
    return not any(path.is_relative_to(item) for item in ("/proc", "/sys", "/dev"))


def _seal(nonce: str, digest: str) -> str:
    return hmac.new(_KEY, f"{nonce} {digest}".encode(errors="surrogatepass"), "sha256").hexdigest()
