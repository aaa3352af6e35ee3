"""Submit what was prepared: upload code that the server lacks, and the submission."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from allranks.api import routes
from allranks.core.transfer_progress import OnProgress, Progress, unheard
from allranks.errors import AllranksError, MissingCode, Unreachable
from allranks.http_client import Client
from allranks.sdk.connection import find_server
from allranks.sdk.connection.counted_file import counted
from allranks.sdk.jobs import terminal
from allranks.snapshot.take import Snapshot

# Seconds that a server may take to copy another job's files.
COPYING = 6 * 3600.0
Snapshots = Sequence[Snapshot]
_AT_ONCE = nullcontext()


def send(
    client: Client,
    submission: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    snapshots: Snapshots = (),
    progress: OnProgress = unheard,
    *,
    to: tuple[str, str] = routes.create_job.at(),
    timeout: float | None = None,
    allow_large_data: bool = False,
    note: Callable[[str], None] = lambda sentence: None,
    asking: AbstractContextManager[None] = _AT_ONCE,
) -> Any:
    """Submit one, or a list, ``to`` a route, uploading code and data that the server lacks; returns
    the server's answer, by default a `CreatedJob`. If interrupted, tell the server to discard the
    code. ``note`` receives what was uploaded; each request that may submit is made in the context
    ``asking``. Raises DataTooLarge unless ``allow_large_data``."""
    sent: list[str] = []
    is_job = to[1].startswith(routes.create_job.path)
    if find_server.of_another_home():
        from allranks.sdk.upload.inputs import How, bring  # lazy: one's own server sees the inputs

        submission = bring(client, submission, How(allow_large_data, note, progress))
    if isinstance(submission, Mapping) and submission.get("continues"):
        timeout = COPYING
    try:
        while True:
            try:
                body = json.dumps(submission).encode()
                with asking:
                    made = json.loads(client.call(*to, body, timeout=timeout).body)
                if is_job:
                    terminal.remember(job["name"] for job in _several(made))
                return made
            except MissingCode:
                if not snapshots:
                    raise
                for snapshot in snapshots:
                    send_code(client, snapshot, progress, sent)
    except BaseException as error:
        if isinstance(error, Unreachable) and error.sent and submission and is_job:
            first = submission if isinstance(submission, Mapping) else submission[0]
            name = first["spec"]["name"]
            error.hint = f"{name} may have been submitted: check with `allranks job show {name}`"
        if sent:
            client.close()  # the connection may be in the middle of a request
            with contextlib.suppress(AllranksError):
                client.ask(routes.discard_blobs, body=sent)
        raise


def _several(made: Any) -> list[Any]:
    return made if isinstance(made, list) else [made]


def send_code(
    client: Client,
    snapshot: Snapshot,
    progress: OnProgress = unheard,
    sent: list[str] | None = None,
) -> None:
    """Upload missing chunks, and the manifest last, so that it never refers to missing chunks.
    ``sent`` gets each digest before its upload."""
    uploaded = [] if sent is None else sent
    missing = client.ask(routes.missing_blobs, body=[*snapshot.parts])
    sizes = {digest: sum(f.status.st_size for f in snapshot.parts[digest]) for digest in missing}
    total, done = sum(sizes.values()), 0
    for digest in missing:
        uploaded.append(digest)
        with snapshot.open(digest) as file:
            body = counted(file, Progress("sending the code", done, total), progress)
            client.call(*routes.put_blob.at(digest), body, timeout=600.0)
        done += sizes[digest]
    uploaded.append(snapshot.digest)
    client.call(*routes.put_blob.at(snapshot.digest), snapshot.manifest, timeout=600.0)
