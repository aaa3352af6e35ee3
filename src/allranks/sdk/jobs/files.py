"""The files of a job, by the paths that commands accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from allranks.api import routes
from allranks.core.job.file_addresses import JobFile, address, hint, selects, written_by
from allranks.errors import NotFound
from allranks.http_client import Client


def job_files(client: Client, name: str) -> list[JobFile]:
    """All files of a job, sorted by path. Raises NotFound if the job does not exist."""
    job = client.ask(routes.show_job, name)
    listing = client.ask(routes.job_files, name)
    attempts = job["attempts"]
    files = []
    for each in listing:
        path, link = address(each["path"], attempts), address(str(each.get("link", "")), attempts)
        files.append(JobFile(path, each["size"], written_by(path, job["nodes"]), link))
    return sorted(files)


def links(client: Client, name: str) -> list[str]:
    """The special files of a job, and the links that lead to none of its files."""
    attempts = client.ask(routes.show_job, name)["attempts"]
    return [address(path, attempts) for path in client.ask(routes.job_links, name)]


def too_long(client: Client, name: str) -> list[str]:
    """The files and folders of a job whose path is too long to be read."""
    attempts = client.ask(routes.show_job, name)["attempts"]
    paths: Any = client.ask(routes.job_files, name, too_long=True)
    return [address(path, attempts) for path in paths]


def selected(
    job: Mapping[str, Any],
    listing: Sequence[Mapping[str, Any]],
    patterns: Sequence[str],
    others: Sequence[str] = (),
) -> set[str]:
    """The record's paths of the files that ``patterns`` matches. Raises NotFound for one without a
    match; ``others`` are links and special files, which do not count."""
    addresses = {file["path"]: address(file["path"], job["attempts"]) for file in listing}
    chosen = set()
    for pattern in patterns:
        meant = {recorded for recorded, path in addresses.items() if selects(pattern, path)}
        if not meant:
            message = f"{job['name']} has no file {pattern!r}"
            if any(selects(pattern, address(path, job["attempts"])) for path in others):
                message += ", only a link that leads to no file of it, or a special file"
            raise NotFound(message, hint=hint(job["name"], pattern, addresses.values()))
        chosen |= meant
    return chosen
