"""`allranks server backup` and `allranks server restore`: a home in one file, and back."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

from allranks import settings
from allranks.cli.admin.server import own_home
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.plan.amounts import counted, size_text
from allranks.plan.progress import OnProgress


def backup_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("goal", metavar="FILE|DIR", help="a new file, or the folder for one")
    files = "states, outputs and logs of jobs, the default datastore and MLflow's artifacts, too"
    parser.add_argument("--with-files", action="store_true", help=files)
    parser.epilog = "The server may run, and jobs, too. Who has the file has the home's keys."


def backup(options: argparse.Namespace) -> int:
    """Write a backup of this machine's home."""
    from allranks.server.storage.backup import write  # lazy: SQLAlchemy

    home = own_home("backs up a home", "backs it up")
    with _reported(options, home.root) as progress:
        report = write(home, Path(options.goal).absolute(), options.with_files, progress)
    if options.json:
        show.as_json(report._asdict())
        return 0
    print(report.file)
    if not options.quiet:
        size, jobs = size_text(report.bytes), counted(report.jobs, "job")
        show.talk(f"{size}, {jobs}, {counted(report.files, 'file')}; it was read back and is whole")
        if not report.with_files:
            show.talk("note: states, and outputs and logs of jobs, are not in it: --with-files")
        for name in report.torn:
            show.talk(f"left out, for it changed while it was read: {name}")
    return 0


def restore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what `allranks server backup` wrote")
    force = "also where there are jobs; what was there is put aside"
    parser.add_argument("--force", action="store_true", help=force)


def restore(options: argparse.Namespace) -> int:
    """Make this machine's home what a backup holds."""
    from allranks.server.storage import restore as restoring  # lazy: SQLAlchemy

    home = own_home("restores a home", "restores it")
    with _reported(options, home.root) as progress:
        report = restoring.restore(home, Path(options.file).absolute(), options.force, progress)
    if options.json:
        show.as_json(report._asdict())
    elif not options.quiet:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.at))
        show.talk(f"{report.home} is as it was at {at}: {counted(report.jobs, 'job')}")
        if report.live:
            show.talk(f"the next server sees to those that had not ended: {', '.join(report.live)}")
        if report.aside is not None:
            show.talk(f"what was there is in {report.aside}")
    return 0


@contextlib.contextmanager
def _reported(options: argparse.Namespace, where: Path) -> Iterator[OnProgress]:
    """What to report progress to. What the system will not do is one of our errors."""
    line = ProgressLine(options.quiet or options.json)
    try:
        yield line.report
    except OSError as error:
        raise settings.unusable(settings.Home(Path(error.filename or where)), error) from error
    finally:
        line.clear()
