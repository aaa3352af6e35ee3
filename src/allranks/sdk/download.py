"""Fetching what a job left: laid out as `az ml job download` does."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from allranks.client import Client
from allranks.errors import NotFound, ServerError
from allranks.sdk.addresses import file_path, job_path


def download(
    client: Client,
    name: str,
    folder: Path,
    *,
    output: str | None = None,
    everything: bool = False,
    progress: Callable[[str, int], None] = lambda path, size: None,
) -> list[Path]:
    """Fetch ``artifacts/`` (outputs, logs, and the last attempt's user_logs), one named
    ``output``, or ``everything``; the files written. A file is whole or not there.

    Raises NotFound for an output the job has not got, ServerError where one may not write.
    """
    job = client.json("GET", job_path(name))
    goals = []
    for each in client.json("GET", job_path(name, "/files")):
        goal = _goal(each["path"], job["attempts"], output, everything)
        if goal is not None:
            goals.append((each, folder / goal))
    if output is not None and not goals and output not in (job["spec"].get("outputs") or {}):
        has = ", ".join(job["spec"].get("outputs") or {}) or "none"
        raise NotFound(f"{name} has no output {output!r}", hint=f"it has: {has}")
    for each, path in goals:
        progress(each["path"], each["size"])
        _fetch(client, name, each, path)
    return [path for _, path in goals]


def _goal(path: str, attempts: int, output: str | None, everything: bool) -> str | None:
    """Where a file of the record goes, or None when it was not asked for."""
    if output is not None:
        return path if path.startswith(f"named-outputs/{output}/") else None
    last = f"attempts/{attempts}/"
    if path.startswith(last):
        return "artifacts/" + path.removeprefix(last)
    if path.startswith("artifacts/"):
        return path
    return path if everything else None


def _fetch(client: Client, name: str, each: dict[str, Any], path: Path) -> None:
    beside = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with beside.open("wb") as file:
            for piece in client.download(file_path(name, each["path"])):
                file.write(piece)
        beside.replace(path)
    except OSError as error:
        raise ServerError(
            f"it cannot be written here: {(error.strerror or str(error)).lower()}",
            where=str(path),
            hint="name another folder: -p DIR",
        ) from error
