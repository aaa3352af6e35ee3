"""`allranks job download`, `model download` and `state download`: choose what to download, show
progress, and resume."""

from __future__ import annotations

import argparse
import contextlib
import errno
import hashlib
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from allranks import settings
from allranks.cli.assets.versions import which_option
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.core.amounts import counted, size_text
from allranks.errors import AllranksError, Conflict, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.transfer.download import (
    Fetched,
    download,
    download_data,
    download_model,
    download_state,
)

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer
    from allranks.core.transfer_progress import OnProgress


def fetch_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    job_argument(parser)
    which = parser.add_mutually_exclusive_group().add_argument
    only = "only this file or folder, as listed by `job files`, or a pattern with * (repeat)"
    which("--path", action="append", default=[], metavar="PATH", help=only)
    which("--output-name", metavar="O", help="only this named output (-o NAME of `run`)")
    everything = (
        "also named outputs and earlier attempts; without it ./outputs, ./logs, the working "
        "folder's new files and the last attempt's logs"
    )
    which("--all", action="store_true", help=everything)
    add("-p", "--download-path", default=".", metavar="DIR", help="where to (.)")
    mixed = "also into a folder that has files of another job"
    add("--any-folder", action="store_true", help=mixed)


def fetch(options: argparse.Namespace) -> int:
    """Download files of a job; prints their local paths. Raises NotFound if it ended without."""
    which = {"output": options.output_name, "everything": options.all, "paths": options.path}
    if not options.any_folder:
        _claim(Path(options.download_path), options.name)
    return _fetch(options, partial(download, **which, needs_files=True))


def require_free(folder: str, not_followed: str) -> None:
    """Make the folder of ``--download`` before the job is submitted. ``not_followed``: what to do
    about a job that is not followed, empty if it is. Raises UsageError and Conflict."""
    if not_followed:
        hint = f"{not_followed}; `allranks job download NAME -p DIR` fetches the files later"
        raise UsageError("the job is not followed", where="--download", hint=hint)
    _require_own(Path(folder), "")
    try:
        if not folder.strip():
            raise FileNotFoundError(errno.ENOENT, "no folder is named")
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "permission denied")
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        message = f"cannot download into {folder!r}: {reason}"
        raise UsageError(message, where="--download", hint="name a folder of yours") from None


def fetch_ended(job: JobAnswer, folder: str, quiet: bool) -> bool:
    """Download an ended job's files, with its named outputs. Whether that worked; a failure is
    printed."""
    name, everything = job["name"], bool(job["spec"].get("outputs"))
    again = f"allranks job download {name} -p {shlex.quote(folder)}{' --all' * everything}"

    def fetch(progress: OnProgress) -> Fetched:
        _claim(Path(folder), name)
        return download(
            find_server.connect, name, Path(folder), everything=everything, progress=progress
        )

    fetched = _tried(fetch, "its files were", again, quiet)
    if fetched is None:
        return False
    if not quiet:
        more = f" into {folder}" if fetched.files else ""
        if not fetched.files and job["type"] == "sweep":
            more = f"; each trial has its own: allranks job download {name}_0 -p DIR"
        show.talk(f"{_sentence(name, fetched)}{more}")
    return True


def fetch_model_options(parser: argparse.ArgumentParser) -> None:
    which_option(parser)
    where = "the folder to download into (.); creates a subfolder of its name"
    parser.add_argument("-p", "--download-path", default=".", metavar="DIR", help=where)


def fetch_model(options: argparse.Namespace) -> int:
    """Download a version of a model and verify it; prints its files."""
    return _fetch(options, download_model)


def fetch_outputs(job: JobAnswer, folders: Mapping[str, str], quiet: bool) -> bool:
    """Download named outputs of an ended job, each into its folder. Whether that worked; a failure
    is printed."""
    for output, folder in folders.items():
        name = job["name"]
        again = f"allranks job download {name} --output-name {output}"
        fetch = partial(
            download, find_server.connect, name, Path(folder), output=output, is_flat=True
        )
        fetched = _tried(fetch, f"{output} was", again, quiet)
        if fetched is None:
            return False
        if not quiet:
            show.talk(f"{_sentence(name, fetched)} into {folder}")
    return True


def _tried(fetch: Callable[..., Fetched], what: str, again: str, quiet: bool) -> Fetched | None:
    """Call ``fetch(progress=…)`` with a progress line. None if that failed, which is printed;
    ``again`` is the command that goes on."""
    line = ProgressLine(quiet, in_pipes=True)
    try:
        return fetch(progress=line.report)
    except KeyboardInterrupt:
        line.clear()
        show.talk(f"\ninterrupted; to continue: {again}")
    except AllranksError as error:
        line.clear()
        show.talk(f"error: {what} not downloaded: {error}\n\nhint: try again: {again}")
    finally:
        line.clear()
    return None


fetch_data_options = fetch_model_options


def fetch_data(options: argparse.Namespace) -> int:
    """Download a version of a data asset; prints its files."""
    return _fetch(options, download_data)


def fetch_state_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help="a state, or the job it belongs to")
    version = "this version (the newest)"
    parser.add_argument("--version", type=int, metavar="N", help=version)
    where = "the folder to download into (.); creates a subfolder of its name"
    parser.add_argument("-p", "--download-path", default=".", metavar="DIR", help=where)


def fetch_state(options: argparse.Namespace) -> int:
    """Download the files of a state and verify them; prints them."""
    return _fetch(options, partial(download_state, version=options.version))


def _fetch(options: argparse.Namespace, download: Callable[..., Fetched]) -> int:
    line = ProgressLine(options.quiet, in_pipes=True)
    try:
        fetched = download(
            find_server.connect, options.name, Path(options.download_path), progress=line.report
        )
    except KeyboardInterrupt:
        line.clear()
        show.talk("\ninterrupted; run the same command again to continue")
        return 130
    finally:
        line.clear()
    if options.json:
        show.as_json(_as_json(fetched))
        return 0
    _print_names(fetched)
    if not options.quiet:
        show.talk(_sentence(options.name, fetched))
        if fetched.replaced:
            show.talk(_replaced(fetched.replaced))
        if fetched.links:
            show.talk(_left_out(fetched.links))
        if fetched.too_long:
            show.talk(show.too_long(fetched.too_long))
        if fetched.left_out:
            show.talk(_not_fetched(options.name, fetched.left_out))
    return 0


def _sentence(name: str, fetched: Fetched) -> str:
    if not fetched.files and not fetched.gone:
        return f"{name} has no files to download yet"
    count = len(fetched.files) - len(fetched.there)
    more = []
    if fetched.there:
        were = "was" if len(fetched.there) == 1 else "were"
        more.append(f"{len(fetched.there)} {were} there already")
    if fetched.gone:
        more.append(f"{len(fetched.gone)} removed by the job meanwhile")
    rest = f" ({', '.join(more)})" if more else ""
    return f"fetched {counted(count, 'file')}, {size_text(fetched.received)}{rest}"


def _replaced(files: Sequence[Path]) -> str:
    many = "a file that was" if len(files) == 1 else f"{len(files)} files that were"
    return f"note: replaced {many} older or different: {show.several(list(map(str, files)))}"


def _left_out(links: Sequence[str]) -> str:
    many = "a link to no file of it, or special file, was"
    if len(links) > 1:
        many = f"{len(links)} links to no file of it, or special files, were"
    return f"note: {many} left out: {show.several(links)}"


def _not_fetched(name: str, addresses: Sequence[str]) -> str:
    """What a plain download skips, by folder, and how to get it."""
    folders = Counter("/".join(address.split("/")[:2]) for address in addresses)
    named = ", ".join(f"{folder} ({counted(n, 'file')})" for folder, n in folders.items())
    return (
        f"note: not downloaded: {named}; to download everything: allranks job download {name} --all"
    )


def _as_json(fetched: Fetched) -> object:
    return {
        "files": [
            {"path": str(path), "bytes": size, "fetched": path not in fetched.there}
            for path, size in fetched.files
        ],
        "fetched": len(fetched.files) - len(fetched.there),
        "there": len(fetched.there),
        "gone": fetched.gone,
        "links": list(fetched.links),
        "left_out": list(fetched.left_out),
        "too_long": list(fetched.too_long),
        "replaced": list(map(str, fetched.replaced)),
        "bytes_received": fetched.received,
    }


def _print_names(fetched: Fetched) -> None:
    """The names, exact in a pipe; without control characters on a terminal."""
    for path, _ in fetched.files:
        if sys.stdout.isatty():
            print(show.one_line(str(path)))
        else:
            sys.stdout.buffer.write(os.fsencode(path) + b"\n")


# The folders of a download in which the files of several jobs cannot be told apart.
_LAYOUT = ("artifacts", "named-outputs", "attempts")


def _claim(folder: Path, job: str) -> None:
    """Note in the home that files of the job are downloaded into the folder. Raises Conflict."""
    _require_own(folder, job)
    note = _note(folder)
    with contextlib.suppress(OSError):
        note.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        note.write_text(job, encoding="utf-8")


def _require_own(folder: Path, job: str) -> None:
    """Raises Conflict if there are files of another job: the layout is az's and does not name the
    job, so they would be mixed."""
    with contextlib.suppress(OSError):
        other = _note(folder).read_text(encoding="utf-8")
        if other != job and any(os.path.lexists(folder / each) for each in _LAYOUT):
            raise Conflict(
                f"the folder has files of the job {other}",
                where=str(folder),
                hint="name a folder for each job, or remove what is there; `job download "
                "--any-folder` mixes them",
            )


def _note(folder: Path) -> Path:
    path = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()
    return settings.home().downloads / path[:32]
