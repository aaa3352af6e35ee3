"""Running an ended job again, as it was or with other code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.errors import UsageError
from allranks.plan.progress import OnProgress, unheard
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path
from allranks.sdk.submit.submission import COPYING, prepare, send


def restart(
    name: str,
    *,
    fresh: bool = False,
    code: str | None = None,
    note: Callable[[str], None] = lambda sentence: None,
    allow_large: bool = False,
    progress: OnProgress = unheard,
) -> dict[str, Any]:
    """Run the job again, with what it left unless it is to be ``fresh``; the new job. ``code`` is a
    folder, file or repository that takes the place of its code; ``note`` is told about that,
    and ``progress`` how far that is."""
    where = job_path(name, "/restart" + ("?fresh=true" if fresh else ""))
    client = find_server.connect()
    data = snapshot = None
    if code is not None:
        client.json("GET", job_path(name))  # before the code of a wrong name is read
        read, snapshot = prepare(
            {"name": name, "code": code},
            Path.cwd(),
            note=note,
            allow_large=allow_large,
            progress=progress,
        )
        if snapshot is None:
            hint = "name the folder with the code: -C DIR"
            raise UsageError("there are no files to run", where=code, hint=hint)
        spec = read["spec"]
        data = {"code": read["code"], "path": spec["code"], "diff": read["diff"]}
        data["properties"] = spec.get("properties") or {}
    return send(client, data, snapshot, progress, where=where, timeout=COPYING)
