"""The files of a job, by the paths that commands accept."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from allranks.api import routes
from allranks.core.job.file_addresses import JobFile, address, hint, selects, written_by
from allranks.errors import NotFound
from allranks.http_client import Client, shaped

# The most links that lead to one another; as the kernel's.
_MOST_LINKS = 40


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
    """The special files of a job, and the links that lead to nothing of it."""
    attempts = client.ask(routes.show_job, name)["attempts"]
    texts = link_targets(client.ask(routes.job_links, name, targets=True))
    folders = folder_times(client, routes.job_files, name)
    others = (path for path in texts if not leads_to_folder(path, texts, folders))
    return [address(path, attempts) for path in others]


def folder_times(client: Client, files: routes.Route[Any], name: str) -> dict[str, int]:
    """The times of folders; none of a server of 0.1, which lists files instead."""
    answer = shaped(client.ask(files, name, folders=True), [{"path": str, "mtime_ns": int}])
    return {each["path"]: each["mtime_ns"] for each in answer if "size" not in each}


def link_targets(answer: Any) -> dict[str, str]:
    """The texts of links; a server of 0.1 does not tell them."""
    links = [
        {"path": link, "target": ""} if isinstance(link, str) else link
        for link in shaped(answer, [object])
    ]
    shaped(links, [{"path": str, "target": str}])
    return {link["path"]: link["target"] for link in links}


def leads_to_folder(path: str, texts: Mapping[str, str], folders: Collection[str]) -> str:
    """Where a link leads, if that is one of the ``folders``, or a link that leads to one; else ''.
    ``texts`` are those of the links."""
    chain = [path]
    while (text := texts.get(chain[-1])) and len(chain) <= _MOST_LINKS:
        chain.append(os.path.normpath(os.path.join(os.path.dirname(chain[-1]), text)))
    return chain[1] if chain[-1] in folders else ""


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
