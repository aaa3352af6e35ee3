"""`allranks doctor`: find what would keep jobs from running here, and how to fix it."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import sqlite3
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from allranks import settings
from allranks.agent.network import interfaces
from allranks.api import routes
from allranks.cli.output import show
from allranks.cli.parser import duration
from allranks.cli.preflight.findings import BAD, NOTE, OK, Finding, present
from allranks.cli.preflight.networks import fabric_words, interface_words
from allranks.core.amounts import counted
from allranks.errors import AllranksError, UsageError
from allranks.sdk.connection import contexts, find_server
from allranks.sdk.submit.current_environment import current
from allranks.settings import Home
from allranks.version import __version__

# The time limit of a job's check: default and minimum, maximum, and the part for start and end.
_SECONDS, _LONGEST, _LEAVING = 10.0, 86_400.0, 1.0

# How long this reads a large database.
_DATABASE_SECONDS = 1.0


def doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exits with 0 if jobs can run, 1 otherwise."
    every = "print each finding"
    parser.add_argument("-v", "--verbose", action="store_true", help=every)
    job = "also check this job's script, inputs and compute"
    parser.add_argument("--job", metavar="FILE", help=job)
    sets = "with --job: set a key, e.g. resources.instance_count=2"
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help=sets)
    most = "with --job: the time to wait for answers (10, the minimum)"
    parser.add_argument("--timeout", type=_seconds, metavar="TIME", help=most)


def _seconds(text: str) -> float:
    seconds = duration(text)
    if not _SECONDS <= seconds <= _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text} is not between {_SECONDS:g} and {_LONGEST:g} seconds"
        )
    return seconds


def doctor(options: argparse.Namespace) -> int:
    """Check, print the findings, and exit with 0 if jobs can run."""
    home = settings.home()
    if options.job is None:
        if options.set:
            raise UsageError("--set needs a job", where="--set", hint="add --job FILE")
        if options.timeout is not None:
            raise UsageError("--timeout needs a job", where="--timeout", hint="add --job FILE")
        return _present(list(_look(home)), options)
    return _of_job(options, home)


def _present(findings: Sequence[Finding], options: argparse.Namespace) -> int:
    code = present(findings, json=options.json, verbose=options.verbose)
    if not (options.json or options.verbose or options.quiet):
        show.talk("\n-v shows each finding")
    return code


def _of_job(options: argparse.Namespace, home: Home) -> int:
    from allranks.cli.preflight.job_checks import preflight  # lazy: imports the models
    from allranks.cli.preflight.probe_gang import within  # lazy: as above

    seconds = options.timeout or _SECONDS
    until = time.monotonic() - _age() + seconds - _LEAVING
    # Signals that end this command also end the probe job, like Ctrl-C.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    line = show.StatusLine(options.quiet)
    try:
        findings = within(0.2 * seconds, lambda: list(_look(home))) or []
        of_job = preflight(Path(options.job), options.set, seconds, until, line.say)
    finally:
        line.clear()
    # With --job, show only blocking findings of this machine.
    wrong = [finding for finding in findings if finding.state == BAD]
    return _present([*wrong, *of_job], options)


def _age() -> float:
    """The age of this process: on a busy machine importing takes a second."""
    try:
        with open("/proc/self/stat") as file:
            started = int(file.read().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, IndexError):
        return 0.3


def _look(home: Home) -> Iterator[Finding]:
    yield Finding("allranks", OK, f"{__version__} on Python {sys.version.split()[0]}")
    try:
        chosen = contexts.chosen()
        if chosen is None:
            yield from _own_server(home)
        else:
            yield _server(f"{chosen.url} ({chosen.source})")
    except AllranksError as error:
        yield Finding("server", BAD, str(error), error.hint or "")
    yield _python()
    yield _bash()
    yield _memory()
    yield _files()
    yield _gpus()
    yield from _networks()


def _home(home: Home) -> Finding:
    place = home.root
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding(
            "home",
            BAD,
            f"{home.root} cannot be written",
            "set ALLRANKS_HOME to a writable folder",
        )
    free = shutil.disk_usage(place).free
    text = f"{home.root}, {free / (1 << 30):.1f} GiB free"
    if free < 1 << 30:
        return Finding(
            "home", BAD, text, "free some space: it holds logs, code and outputs of jobs"
        )
    return Finding("home", OK, text)


def _database(home: Home) -> Iterator[Finding]:
    """What is wrong with the file that has the record of jobs. A large one is read in part."""
    error: Exception
    try:
        if not (home.database.exists() and home.database.stat().st_size):
            if isinstance(settings.database(home), Path):
                settings.require_no_jobs(home)
            return
        until = time.monotonic() + _DATABASE_SECONDS
        with closing(sqlite3.connect(f"{home.database.as_uri()}?mode=ro", uri=True)) as database:
            database.set_progress_handler(lambda: time.monotonic() > until, 10_000)
            (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict == "ok":
            return
        error = sqlite3.DatabaseError(f"malformed: {verdict}")
    except (AllranksError, OSError, sqlite3.Error) as raised:
        error = raised
    if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
        return
    if not isinstance(error, AllranksError):
        from allranks.store.database import database_error  # lazy: SQLAlchemy

        error = database_error(error, home.database)
    yield Finding("database", BAD, f"{home.database}: {error.message}", error.hint or "")


def _own_server(home: Home) -> Iterator[Finding]:
    yield _home(home)
    yield from _database(home)
    running = find_server.look(home)
    not_running = Finding("server", NOTE, "not running; starts with the next job")
    yield _server(running.url) if running.alive else not_running


def _server(name: str | None) -> Finding:
    try:
        answer = find_server.connect(start=False).ask(routes.show_server)
    except AllranksError as error:
        return Finding("server", BAD, error.message, error.hint or "")
    return Finding("server", OK, f"{name}, {counted(answer['live_jobs'], 'job')} live")


def _python() -> Finding:
    path = current()["PATH"]
    python = shutil.which("python", path=path)
    if python is None:
        return Finding(
            "python",
            BAD,
            "no `python` on the PATH for ranks",
            "activate an environment with Python",
        )
    return Finding("python", OK, f"ranks run {python}")


def _bash() -> Finding:
    if os.access("/bin/bash", os.X_OK):
        return Finding("bash", OK, "/bin/bash")
    return Finding("bash", BAD, "/bin/bash not found", "install bash: it runs the commands")


def _memory() -> Finding:
    size = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    text = f"/dev/shm has {size / (1 << 20):.0f} MiB"
    if size < 256 << 20:
        hint = "data loader workers need more: mount -o remount,size=2g /dev/shm"
        return Finding("shared memory", NOTE, text, hint)
    return Finding("shared memory", OK, text)


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files per process"
    if soft < 1024:
        return Finding("file limit", NOTE, text, "ulimit -n 4096")
    return Finding("file limit", OK, text)


def _gpus() -> Finding:
    count = len([n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()])
    if not count:
        return Finding("GPUs", NOTE, "none seen")
    return Finding("GPUs", OK, f"{count}; a job gets one per rank of a node, or --gpus G")


# A documentation address (RFC 5737), routed like any public address.
_SOMEWHERE = "198.51.100.1"


def _networks() -> Iterator[Finding]:
    """The network interfaces of jobs, InfiniBand, and the variables for ranks."""
    place = Path(os.environ.get("ALLRANKS_SYS_CLASS") or interfaces.SYS_CLASS)
    fabric = interfaces.fabric(place)
    here = interfaces.interface("127.0.0.2", ["127.0.0.3"], place)
    beyond = interfaces.interface(_SOMEWHERE, [_SOMEWHERE], place)
    for towards, interface in (("between local nodes", here), ("to other hosts", beyond)):
        if interface is None:
            yield Finding("network", NOTE, f"{towards}: none", "ip route")
            continue
        words = interface_words({**interface._asdict(), "cidr": interface.cidr})
        yield Finding("network", OK, f"{towards}: {words}")
    if fabric is not None and fabric.ports:
        words = fabric_words([(port.name, port.link_layer, port.rate) for port in fabric.ports])
        yield Finding("InfiniBand", OK, words)
    if fabric is not None and fabric.down:
        yield Finding("InfiniBand", NOTE, f"down: {', '.join(fabric.down)}", "see `ibstat`")
    # Ranks on several hosts get more variables than those on one machine.
    for variable in interfaces.explained(beyond or here, fabric):
        yield Finding("variable", OK, f"{variable.name}={variable.value}  {variable.why}")
