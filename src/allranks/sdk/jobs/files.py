"""The files of a job, by the paths that commands accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allranks.core.job.file_addresses import JobFile, address, hint, selects, written_by
from allranks.errors import NotFound
from allranks.http_client import Client
from allranks.sdk.connection.urls import job_path

if TYPE_CHECKING:
    from allranks.api.jobs import FileAnswer
    from allranks.api.metrics import ShownJob


def job_files(client: Client, name: str) -> list[JobFile]:
    """All files of a job, sorted by path. Raises NotFound if the job does not exist."""
    job: ShownJob = client.json("GET", job_path(name))
    listing: list[FileAnswer] = client.json("GET", job_path(name, "/files"))
    found = ((address(each["path"], job["attempts"]), each["size"]) for each in listing)
    return sorted(JobFile(path, size, written_by(path, job["nodes"])) for path, size in found)


def too_long(client: Client, name: str) -> list[str]:
    """The files and folders of a job whose path is too long to be read."""
    attempts = client.json("GET", job_path(name))["attempts"]
    paths = client.json("GET", job_path(name, "/files?too_long=true"))
    return [address(path, attempts) for path in paths]


def selected(
    job: Mapping[str, Any], listing: Sequence[Mapping[str, Any]], patterns: Sequence[str]
) -> set[str]:
    """The record's paths of the files that ``patterns`` matches. Raises NotFound for one without a
    match."""
    addresses = {file["path"]: address(file["path"], job["attempts"]) for file in listing}
    chosen = set()
    for pattern in patterns:
        meant = {recorded for recorded, path in addresses.items() if selects(pattern, path)}
        if not meant:
            message = f"{job['name']} has no file {pattern!r}"
            raise NotFound(message, hint=hint(job["name"], pattern, addresses.values()))
        chosen |= meant
    return chosen
