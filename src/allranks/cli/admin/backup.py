"""`allranks server backup` and `allranks server restore`: a home in one file, and back."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from collections.abc import Iterator
from pathlib import Path

from allranks import settings
from allranks.cli.admin.server import own_home
from allranks.cli.output import show
from allranks.cli.output.progress_line import ProgressLine
from allranks.core.amounts import counted, size_text
from allranks.core.transfer_progress import OnProgress
from allranks.errors import UsageError


def backup_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("goal", metavar="FILE|DIR", help="a new file, or a folder for one")
    files = "include states, outputs, logs, the default datastore and MLflow artifacts"
    parser.add_argument("--with-files", action="store_true", help=files)
    parser.epilog = (
        "The server and its jobs may be running. The file contains the keys of this home: keep it "
        "secret."
    )


def backup(options: argparse.Namespace) -> int:
    """Write a backup of this machine's home."""
    from allranks.server.storage.backup import write  # lazy: SQLAlchemy

    home = own_home()
    if options.goal.endswith("/") and not Path(options.goal).is_dir():
        hint = f"create it: mkdir -p {shlex.quote(options.goal)}"
        raise UsageError(f"there is no folder {options.goal}", where="FILE|DIR", hint=hint)
    with _progress(options, home.root) as progress:
        report = write(home, Path(options.goal).absolute(), options.with_files, progress)
    if options.json:
        show.as_json(report._asdict())
        return 0
    print(report.file)
    if not options.quiet:
        size = size_text(report.bytes)
        jobs = counted(report.jobs, "job")
        show.talk(f"{size}, {jobs}, {counted(report.files, 'file')}; verified by reading it back")
        if not report.with_files:
            show.talk("note: without states, outputs and logs of jobs; add them by --with-files")
        for name in report.torn:
            show.talk(f"note: left out, because it changed while it was read: {name}")
        if report.left_out:
            names = show.several([name[:200] for name in report.left_out])
            show.talk(f"note: left out, unreadable, mostly holes or of too long a path: {names}")
    return 0


def restore_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a file of `allranks server backup`")
    force = "replace a home that has jobs; its contents are moved aside"
    parser.add_argument("--force", action="store_true", help=force)
    show.yes_option(parser.add_argument)


def restore(options: argparse.Namespace) -> int:
    """Replace this machine's home by a backup."""
    from allranks.server.storage.restore import require_file, restore  # lazy: SQLAlchemy

    home, backup = own_home(), Path(options.file).absolute()
    require_file(backup)
    where = settings.database(home)
    is_new = isinstance(where, Path) and not where.exists()
    if not is_new and not show.may_destroy(options, f"replace the home {home.root}"):
        return 1
    with _progress(options, home.root) as progress:
        report = restore(home, backup, options.force, progress)
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(report.at))
    sentences = [f"{report.home} is restored to {at}: {counted(report.jobs, 'job')}"]
    if report.live:
        jobs = ", ".join(report.live)
        sentences.append(f"the next server resumes the jobs that had not ended: {jobs}")
    if report.aside is not None:
        sentences.append(f"the previous contents are in {report.aside}")
    if report.port_in_use is not None:
        sentences.append(f"port {report.port_in_use} is in use here: this home gets one of its own")
    return show.result(options, report._asdict(), *sentences)


@contextlib.contextmanager
def _progress(options: argparse.Namespace, root: Path) -> Iterator[OnProgress]:
    """A progress line. Raises an OSError of the block as an AllranksError."""
    line = ProgressLine(options.quiet or options.json)
    try:
        yield line.report
    except OSError as error:
        raise settings.unusable(settings.Home(Path(error.filename or root)), error) from error
    finally:
        line.clear()
