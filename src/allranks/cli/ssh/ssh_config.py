"""`allranks job ssh-config`: an entry for OpenSSH's programs that leads into a running job."""

from __future__ import annotations

import argparse
import os
import shlex
from pathlib import Path

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.ssh import keys
from allranks.errors import AllranksError, NotFound, UsageError
from allranks.sdk.connection import find_server
from allranks.statuses import TERMINAL


def ssh_config_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("--rank", type=int, metavar="R", help="the rank to enter (0)")
    parser.add_argument("--node", type=int, metavar="N", help="a node: its first rank")
    include = "let ~/.ssh/config include the entries of all jobs, once, for VS Code and the like"
    parser.add_argument("--include", action="store_true", help=include)


def ssh_config(options: argparse.Namespace) -> int:
    """Write an entry with which ssh, scp, sftp, rsync, VS Code and PyCharm get into a running job.
    It leads through this command's connection to the server; its key is made for the job, and
    removed once it has ended."""
    config, host = written(options.name, options.rank, options.node)
    line = f"Include {_quoted(f'{keys.all_folders()}/*/*/config')}"
    if options.include:
        _include(line)
    if options.json:
        show.as_json({"host": host, "file": str(config), "include": line})
        return 0
    show.line(host)
    if not options.quiet:
        show.talk(f"ssh -F {shlex.quote(str(config))} {host}")
        if not options.include:
            show.talk(f"hint: --include lets every program find {host}; or put into ~/.ssh/config:")
            show.talk(f"  {line}")
    return 0


def written(job: str, rank: int | None, node: int | None) -> tuple[Path, str]:
    """Write the entry of a job that lives; returns its file and host. Raises AllranksError."""
    keys.library()
    if rank is not None and node is not None:
        raise UsageError("give a rank or a node", where="--node", hint="leave out one of them")
    with find_server.connect() as client:
        for other in keys.jobs():
            if _has_ended(client, other):
                keys.remove(other)
        shown = client.ask(routes.show_job, job)
    for key, number, many in (("rank", rank, shown["processes"]), ("node", node, shown["nodes"])):
        if number is not None and not 0 <= number < many:
            hint = f"the {key}s of this job are 0 to {many - 1}"
            raise UsageError(f"{job} has no {key} {number}", where=f"--{key}", hint=hint)
    if shown["status"] in TERMINAL:
        hint = f"its files: allranks job files {job}; to run it again: allranks job restart {job}"
        raise UsageError(f"{job} has ended, and nobody can enter it", hint=hint)
    entry = keys.Entry(job, rank, node)
    return keys.write(entry), entry.host


def _has_ended(client: object, job: str) -> bool:
    try:
        return client.ask(routes.show_job, job)["status"] in TERMINAL  # type: ignore[attr-defined]
    except NotFound:
        return True
    except AllranksError:
        return False


def _quoted(path: str) -> str:
    return f'"{path}"' if " " in path else path


def _include(line: str) -> None:
    """Put the line before all others, for it counts only outside of a Host. Raises UsageError."""
    file = Path(os.path.expanduser("~/.ssh/config"))
    try:
        text = file.read_text() if file.exists() else ""
        if line in text.splitlines():
            return
        file.parent.mkdir(mode=0o700, exist_ok=True)
        made = file.with_name("config.allranks")
        made.write_text(f"{line}\n\n{text}")
        made.chmod(file.stat().st_mode & 0o777 if file.exists() else 0o600)
        made.replace(file.resolve())
    except (OSError, UnicodeError) as error:
        hint = f"put it there yourself: {line}"
        raise UsageError(f"cannot be changed: {error}", where=str(file), hint=hint) from None
