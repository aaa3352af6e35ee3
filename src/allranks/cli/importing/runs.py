"""`allranks import runs FOLDER`: W&B runs and TensorBoard folders as jobs that ran elsewhere."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from allranks.agent.trackers import runs
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.core.amounts import counted
from allranks.core.transfer_progress import Progress
from allranks.errors import NotFound, UsageError
from allranks.http_client import Client
from allranks.sdk.connection import find_server

_ROUTE = "/api/v1/jobs/imported"
# Bytes of points in one request.
_PIECE = 2 << 20


def import_runs(options: argparse.Namespace, folder: str) -> int:
    """Record each run below the folder that is not there yet. Exit 0, or 1 if files are damaged."""
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="give the folder with the runs")
    every = runs.find(root)
    if not every:
        hint = "it needs W&B's files `run-….wandb`, or TensorBoard's `…tfevents…`"
        raise NotFound(f"there are no runs in {folder}", hint=hint)
    progress = ProgressLine(options.quiet or options.json)
    answers = list[dict[str, Any]]()
    with find_server.connect() as client:
        total = sum(map(_size, every))
        done = 0
        for number, files in enumerate(every):
            progress.report(Progress("importing", done, total, number, len(every)))
            answers.append(_import(client, files))
            done += _size(files)
    progress.clear()
    damaged = [answer for answer in answers if answer["damage"]]
    if options.json:
        show.as_json({"jobs": answers})
        return int(bool(damaged))
    for answer in damaged:
        show.talk(f"note: {answer['job']}: {answer['source']}: {answer['damage']}")
    new = sum(answer["created"] for answer in answers)
    there = f", {len(answers) - new} were there" if new < len(answers) else ""
    show.line(f"{counted(new, 'run')} imported{there}; allranks job list shows them")
    return int(bool(damaged))


def _size(files: runs.Files) -> int:
    return sum(path.stat().st_size for path in files.paths)


def _import(client: Client, files: runs.Files) -> dict[str, Any]:
    run = runs.read(files)
    about = {
        "name": files.name,
        "experiment": run.project,
        "display_name": run.title,
        "source": str(files.source.resolve()),
        "status": "Failed" if run.exit_code else "Completed",
        "message": f"it ended with exit code {run.exit_code}" if run.exit_code else "",
        "exit_code": run.exit_code,
        "began": run.began,
        "ended": run.ended,
        "parameters": run.parameters,
    }
    offset, created = 0, False
    for piece in _pieces(run.lines):
        data = {**about, "lines": piece.decode(), "offset": offset}
        created |= client.json("POST", _ROUTE, data)["created"]
        offset += len(piece)
    return {
        "job": files.name,
        "source": about["source"],
        "created": created,
        "points": sum(line.count(b"], [") + 1 for line in run.lines),
        "damage": run.damage,
    }


def _pieces(lines: list[bytes]) -> Iterator[bytes]:
    piece = b""
    for line in lines:
        piece += line
        if len(piece) > _PIECE:
            yield piece
            piece = b""
    yield piece
