"""`allranks job tag`, `archive`, `restore` and `delete`: change or remove jobs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, TypedDict

from allranks.api import routes
from allranks.cli.job_names import job_argument, whole_job_argument
from allranks.cli.output import show
from allranks.core.amounts import size_text
from allranks.core.job.list_filters import tag as read_tag
from allranks.errors import Conflict, UsageError
from allranks.http_client import Client
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.jobs import DeletedJob


def tag_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("tags", nargs="*", metavar="K=V", help="set these tags and keep the others")
    remove = "remove this tag; repeat"
    parser.add_argument("--remove", action="append", default=[], metavar="K", help=remove)


def tag(options: argparse.Namespace) -> int:
    tags = {}
    for text in options.tags:
        key, value = read_tag(text)
        if value is None:
            hint = f"set a value: {key}=VALUE, or remove it: --remove {key}"
            raise UsageError(f"the tag {text!r} has no value", where="tags", hint=hint)
        tags[key] = value
    if not tags and not options.remove:
        raise UsageError("no tag to set or remove was given", hint="K=V …, or --remove K")
    change = {"tags": tags, "remove_tags": options.remove}
    job = find_server.ask(routes.update_job, options.name, body=change)
    if options.json:
        show.as_json(job)
    elif not options.quiet:
        now = ", ".join(f"{key}={value}" for key, value in job["tags"].items())
        show.talk(f"{job['name']}: {now or 'no tags'}")
    return 0


def archive_options(parser: argparse.ArgumentParser) -> None:
    whole_job_argument(parser, nargs="+")


def archive(options: argparse.Namespace) -> int:
    return _archive(options, True, "archived; `allranks job restore` undoes this")


restore_options = archive_options


def restore(options: argparse.Namespace) -> int:
    return _archive(options, False, "is in lists again")


def _archive(options: argparse.Namespace, archived: bool, outcome: str) -> int:
    answers = []
    for name in dict.fromkeys(options.names):
        answers.append(find_server.ask(routes.update_job, name, body={"archived": archived}))
        if not options.json and not options.quiet:
            show.talk(f"{name} {outcome}")
    if options.json:
        show.as_json(answers)
    return 0


def delete_options(parser: argparse.ArgumentParser) -> None:
    whole_job_argument(parser, nargs="+")


def delete(options: argparse.Namespace) -> int:
    """Delete ended jobs, for good."""
    with find_server.connect() as client:
        jobs = [_job_of(client, name) for name in dict.fromkeys(options.names)]
        # Delete the newest first: newer jobs may use outputs of older ones.
        jobs.sort(key=lambda job: job["created_at"], reverse=True)
        if not options.yes and show.can_ask():
            for job in jobs:
                show.talk(f"{job['name']}  {job['status']}  {job['display_name']}")
        names = show.several([job["name"] for job in jobs])
        if not show.may_destroy(options, f"delete {names} with outputs and logs, for good"):
            return 1
        gone: list[DeletedJob] = []
        for job in jobs:
            gone.append(client.ask(routes.delete_job, job["name"]))
            if not options.json and not options.quiet:
                show.talk(f"deleted {job['name']}, {size_text(gone[-1]['bytes'])}")
    if options.json:
        show.as_json(gone)
    return 0


class _Deletable(TypedDict):
    """What is asked about a job before it is deleted."""

    name: str
    status: str
    display_name: str
    created_at: str


def _job_of(client: Client, name: str) -> _Deletable:
    try:
        job = client.ask(routes.show_job, name)
    except Conflict:  # its record is damaged: only the name is known
        return {"name": name, "status": "Damaged", "display_name": name, "created_at": ""}
    return {
        "name": job["name"],
        "status": job["status"],
        "display_name": job["display_name"],
        "created_at": job["created_at"],
    }
