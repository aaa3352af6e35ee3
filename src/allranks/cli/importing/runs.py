"""`allranks import runs FOLDER`: W&B, TensorBoard and Trackio runs as jobs that ran elsewhere."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from allranks.agent.trackers import runs
from allranks.agent.trackers.kept_images import KeptImages
from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.core.amounts import counted
from allranks.core.transfer_progress import Progress
from allranks.errors import Conflict, NotFound, UsageError
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import ImportedJob
    from allranks.http_client import Client

# Bytes of points in one request, which takes less than twice as many, and runs.
_PIECE, _RUNS = 1 << 20, 100


def import_runs(options: argparse.Namespace, folder: str) -> int:
    """Record each run below the folder that is not there yet. Exit 0, or 1 if files are damaged.
    A file of which nothing can be read is no job."""
    root = Path(folder)
    if not root.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="give the folder with the runs")
    every = runs.find(root)
    if not every:
        hint = "it needs W&B's files `run-….wandb`, TensorBoard's `…tfevents…`, or Trackio's `.db`"
        raise NotFound(f"there are no runs in {folder}", hint=hint)
    answers = dict[str, dict[str, Any]]()
    # Runs are read while those before are sent.
    with find_server.connect() as client, ThreadPoolExecutor(1) as sender:
        sent: Future[list[ImportedJob]] | None = None
        for batch in _batches(every, answers, ProgressLine(options.quiet or options.json)):
            before = sent
            sent = sender.submit(_send, client, batch, answers)
            _note_created(before, answers)
        _note_created(sent, answers)
    jobs = [*answers.values()]
    damaged = [answer for answer in jobs if answer["damage"]]
    if options.json:
        show.as_json({"jobs": jobs})
        return int(bool(damaged))
    for answer in damaged:
        show.talk(f"note: {answer['job']}: {answer['source']}: {answer['damage']}")
    new = sum(answer["created"] for answer in jobs)
    recorded = sum(answer["recorded"] for answer in jobs)
    there = f", {recorded - new} were there" if new < recorded else ""
    without = f", {len(jobs) - recorded} left out" if recorded < len(jobs) else ""
    shown = "; allranks job list shows them" if recorded else ""
    show.line(f"{counted(new, 'run')} imported{there}{without}{shown}")
    return int(bool(damaged))


def _send(
    client: Client, batch: list[Document], answers: dict[str, dict[str, Any]]
) -> list[ImportedJob]:
    """Record runs. One whose name another job has does not keep the others out."""
    try:
        return client.ask(routes.add_imported, body={"runs": batch})
    except Conflict as error:
        if len(batch) == 1:
            answers[batch[0]["name"]] |= {"damage": error.message, "recorded": False}
            return []
    return [job for run in batch for job in _send(client, [run], answers)]


def _size(files: runs.Files) -> int:
    return sum(path.stat().st_size for path in files.paths if path.exists())


def _note_created(
    sent: Future[list[ImportedJob]] | None, answers: dict[str, dict[str, Any]]
) -> None:
    for job in sent.result() if sent is not None else ():
        answers[job["name"]]["created"] |= job["created"]


def _batches(
    every: Sequence[runs.Files], answers: dict[str, dict[str, Any]], progress: ProgressLine
) -> Iterator[list[Document]]:
    """Read the runs, for requests of several; one of many points is in several requests. Adds what
    the command tells of each run to ``answers``."""
    batch: list[Document] = []
    size = 0
    total, done = sum(map(_size, every)), 0
    for number, files in enumerate(every):
        progress.report(Progress("importing", done, total, number, len(every)))
        done += _size(files)
        for part in _parts(files, answers):
            batch.append(part)
            texts = [part["lines"], *part["parameters"], *part["parameters"].values()]
            size += sum(map(len, [*texts, *part["images"].values()]))
            if size > _PIECE or len(batch) == _RUNS:
                yield batch
                batch, size = [], 0
    progress.clear()
    if batch:
        yield batch


def _parts(files: runs.Files, answers: dict[str, dict[str, Any]]) -> Iterator[Document]:
    answer = {"job": files.name, "source": str(files.source.resolve()), "created": False}
    answer = answer | {"points": 0, "images": 0, "damage": "", "recorded": False}
    answers[files.name], kept = answer, KeptImages()
    for attempt, (part, run) in enumerate(runs.parts(files), 1):
        yield from _requests(part, attempt, run, kept, answer)
    answer["images"] = kept.count
    for note in kept.notes():
        show.talk(f"note: {files.name}: {note}")


def _requests(
    files: runs.Files, attempt: int, run: runs.Run, kept: KeptImages, answer: dict[str, Any]
) -> Iterator[Document]:
    is_readable = not run.damage or bool(run.lines or run.last or run.parameters)
    message = f"it ended with exit code {run.exit_code}" if run.exit_code else ""
    if run.is_cut:
        message = "its file has no end: the run was killed, or had not ended yet"
    about = {
        "name": files.name,
        "experiment": run.project,
        "display_name": run.title,
        "source": answer["source"],
        "attempt": attempt,
        "status": "Failed" if message else "Completed",
        "message": message,
        "exit_code": run.exit_code,
        "began": run.began,
        "ended": run.ended,
    }
    answer["points"] += len(run.lines) + len(run.last)
    answer["damage"] = answer["damage"] or run.damage
    answer["recorded"] |= is_readable
    if not is_readable:
        return
    parameters = run.parameters
    for is_summary, lines in ((False, run.lines), (True, run.last)):
        offset = 0
        for piece in _pieces(lines):
            points = {"lines": piece.decode(), "offset": offset, "is_summary": is_summary}
            yield {**about, "parameters": parameters, **points, "images": {}}
            offset += len(piece)
            parameters = {}
    for path, data in runs.keep_images(files, kept) if run.has_images else ():
        images = {path: base64.b64encode(data).decode()}
        yield {**about, "parameters": {}, "lines": "", "images": images}


def _pieces(lines: list[bytes]) -> Iterator[bytes]:
    piece = list[bytes]()
    size = 0
    for line in lines:
        piece.append(line)
        size += len(line)
        if size > _PIECE:
            yield b"".join(piece)
            piece, size = [], 0
    yield b"".join(piece)
