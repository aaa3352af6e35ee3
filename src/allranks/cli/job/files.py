"""`allranks job files`: the files of a job, and the summary when it ends."""

from __future__ import annotations

import argparse
import contextlib
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.core.amounts import counted, size_text
from allranks.core.data import kept_files
from allranks.errors import ServerError
from allranks.sdk.connection import find_server
from allranks.statuses import JobStatus

if TYPE_CHECKING:
    from allranks.api.jobs import EventAnswer, FileAnswer, JobRecord

# Folders of the record, their labels in the summary, and their variables.
_FOLDERS = {"outputs": "", "model": " ($SM_MODEL_DIR)", "data": " ($SSM_OUTPUT)"}


def files_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)


def files(options: argparse.Namespace) -> int:
    """List the files of a job. All commands accept these paths."""
    from allranks.sdk.jobs import files as job_files  # lazy: `left` is on every job's way

    client = find_server.connect()
    entries = job_files.job_files(client, options.name)
    if options.json:
        show.as_json([entry._asdict() for entry in entries])
        return 0
    if not options.quiet:
        if unreadable := job_files.too_long(client, options.name):
            show.talk(show.too_long(unreadable))
        if links := job_files.links(client, options.name):
            show.talk(f"note: left out, because they are {show.NO_FILES}: {show.several(links)}")
    if not entries:
        show.talk(f"{options.name} has no files yet")
        return 0
    rows = [
        (
            entry.path + f" -> {entry.link}" * bool(entry.link),
            size_text(entry.size),
            "" if entry.node is None else str(entry.node),
        )
        for entry in entries
    ]
    show.columns(("PATH", "SIZE", "NODE"), rows)
    if not options.quiet:
        size = size_text(sum(entry.size for entry in entries if not entry.link))
        show.talk(f"{counted(len(entries), 'file')}, {size}")
        show.talk(f"to download one: allranks job download {options.name} --path PATH")
    return 0


def left(job: JobRecord, events: Sequence[EventAnswer]) -> list[str]:
    """A summary of the files in the folders of a job with these ``events``, as lines."""
    lines = []
    elsewhere = set[str]() if os.path.isdir(job["folder"]) else _folders_elsewhere(job["name"])
    for name, variable in _FOLDERS.items():
        folder = os.path.join(job["folder"], "artifacts", name)
        if _has_files(folder):
            lines.append(f"{name}{variable}: {folder}")
        elif name in elsewhere:
            lines.append(f"{name}{variable}: on the server; allranks job download {job['name']}")
    for name, path in job["outputs"].items():
        # Of a job that did not complete, what it wrote.
        if job["status"] == JobStatus.COMPLETED or _has_files(path):
            lines.append(f"output {name}: {path}")
    kept = kept_files.summary(events, job["attempts"])
    if kept.files:
        folder = os.path.join(job["folder"], "artifacts", "work")
        many = f"{counted(kept.files, 'file')}, {size_text(kept.size)}"
        lines.append(f"working folder: {many} kept in {folder}")
    return lines + [f"note: {sentence}" for sentence in kept_files.sentences(kept)]


def _folders_elsewhere(name: str) -> set[str]:
    """The names of the job's folders that have files, on a server of another machine."""
    listing: list[FileAnswer] = []
    with contextlib.suppress(ServerError), find_server.connect() as client:
        listing = client.ask(routes.job_files, name)
    steps = [file["path"].split("/") for file in listing]
    return {step[1] for step in steps if step[0] == "artifacts" and len(step) > 2}


def _has_files(folder: str) -> bool:
    return os.path.isfile(folder) or (os.path.isdir(folder) and bool(os.listdir(folder)))
