"""`allranks doctor`: what would keep jobs from running here, each with its mend."""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
from collections.abc import Iterator
from typing import NamedTuple

from allranks import __version__, settings
from allranks.cli import show
from allranks.errors import AllranksError
from allranks.sdk import finding
from allranks.sdk.environment import current
from allranks.settings import Home


class Finding(NamedTuple):
    """One thing looked at: fine, worth knowing, or in the way."""

    what: str
    state: str
    found: str
    hint: str = ""


def doctor_options(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit 0 when nothing is in the way, 1 otherwise."


def doctor(options: argparse.Namespace) -> int:
    """Look, print, and say by the exit code whether jobs can run."""
    findings = list(_look(settings.home()))
    if options.json:
        show.as_json([each._asdict() for each in findings])
    else:
        marks = {"ok": "✓", "note": "·", "bad": "✗"}
        for each in findings:
            print(f"{marks[each.state]} {each.what:<14} {each.found}")
            if each.hint:
                print(f"  {'':<14} hint: {each.hint}")
    return 1 if any(each.state == "bad" for each in findings) else 0


def _look(home: Home) -> Iterator[Finding]:
    yield Finding("allranks", "ok", f"{__version__} on Python {sys.version.split()[0]}")
    yield _home(home)
    yield _server(home)
    yield _python()
    yield _bash()
    yield _memory()
    yield _files()
    yield _gpus()


def _home(home: Home) -> Finding:
    place = home.root
    while not place.exists():
        place = place.parent
    if not os.access(place, os.W_OK | os.X_OK):
        return Finding(
            "home",
            "bad",
            f"{home.root} cannot be written",
            "set ALLRANKS_HOME to a folder of yours",
        )
    free = shutil.disk_usage(place).free
    text = f"{home.root}, {free / (1 << 30):.1f} GiB free"
    if free < 1 << 30:
        return Finding("home", "bad", text, "make room: logs, code and outputs of jobs lie there")
    return Finding("home", "ok", text)


def _server(home: Home) -> Finding:
    found = finding.look(home)
    if not found.alive:
        return Finding("server", "note", "not running; the next job starts it")
    try:
        told = finding.connect(start=False).json("GET", "/api/v1/server")
    except AllranksError as error:
        return Finding("server", "bad", error.message, error.hint or "")
    return Finding("server", "ok", f"{found.url}, {told['live_jobs']} jobs live")


def _python() -> Finding:
    path = current()["PATH"]
    python = shutil.which("python", path=path)
    if python is None:
        return Finding(
            "python", "bad", "no `python` for the ranks", "activate an environment that has one"
        )
    return Finding("python", "ok", f"ranks run {python}")


def _bash() -> Finding:
    if os.access("/bin/bash", os.X_OK):
        return Finding("bash", "ok", "/bin/bash")
    return Finding("bash", "bad", "there is no /bin/bash", "install it: commands are bash")


def _memory() -> Finding:
    size = shutil.disk_usage("/dev/shm").total if os.path.isdir("/dev/shm") else 0
    text = f"/dev/shm has {size / (1 << 20):.0f} MiB"
    if size < 256 << 20:
        hint = "data loaders with workers need more: mount -o remount,size=2g /dev/shm"
        return Finding("shared memory", "note", text, hint)
    return Finding("shared memory", "ok", text)


def _files() -> Finding:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    text = f"{soft} open files a process"
    if soft < 1024:
        return Finding("file limit", "note", text, "ulimit -n 4096")
    return Finding("file limit", "ok", text)


def _gpus() -> Finding:
    count = len([n for n in os.listdir("/dev") if n.startswith("nvidia") and n[6:].isdigit()])
    if not count:
        return Finding("GPUs", "note", "none seen")
    return Finding("GPUs", "ok", f"{count}; a job gets those it asks for: --gpus N")
