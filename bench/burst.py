"""Many one-rank jobs at once from one Python process; did all that they said arrive?"""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from allranks import Client, command, settings
from allranks.sdk.connection import find_server
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, table

# Bare processes are run so many at a time: one a core of the machine the bars were set on.
_AT_A_TIME = 2


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=50, metavar="N", help="jobs of the burst (50)")


def run(given: argparse.Namespace) -> Result:
    rows, data, wrong = [], dict[str, Any](), list[str]()
    for title, how in (("one by one", _one_by_one), ("a list", _list), ("a list, killed", _killed)):
        expected = [f"job {i} says {os.urandom(6).hex()}" for i in range(given.jobs)]
        with Home() as home, _inside(home):
            home.allranks("run", "--", "true")  # the server runs, and has run a job
            found, said = _burst(expected, how)
        wrong += [*_wrong(found["ended"], said, expected), *home.left]
        found["accepted_per_s"] = given.jobs / found["submitted_s"]
        found["done_per_s"] = given.jobs / found["all_ended_s"]
        data[title] = found
        rows.append(
            (
                f"allranks, Python SDK, {title}",
                "-" if how is _killed else f"{found['accepted_per_s']:.0f}",
                f"{found['all_ended_s']:.2f}",
                f"{found['done_per_s']:.1f}",
                _arrived(said, expected),
            )
        )
    bare = procs.timed(lambda: _bare(expected))
    name = f"bare processes, {_AT_A_TIME} at a time"
    rows.append((name, "-", f"{bare:.2f}", f"{given.jobs / bare:.1f}", "-"))
    head = (f"{given.jobs} one-rank jobs", "accepted/s", "seconds", "done/s", "output arrived once")
    return Result(
        name="burst",
        text=table(head, rows),
        data={"jobs": given.jobs, "bare_s": bare, **data},
        bars=[
            Bar(what="a list: accepted/s", found=data["a list"]["accepted_per_s"], least=300.0),
            Bar(what="a list: done/s", found=data["a list"]["done_per_s"], least=40.0),
        ],
        wrong=wrong,
    )


Submit = Callable[[Sequence[str]], list[str]]


def _one_by_one(expected: Sequence[str]) -> list[str]:
    jobs = Client().jobs
    return [jobs.create_or_update(command(command=f"echo {line}")).name for line in expected]


def _list(expected: Sequence[str]) -> list[str]:
    made = [command(command=f"echo {line}") for line in expected]
    return [job.name for job in Client().jobs.create_or_update(made)]


def _killed(expected: Sequence[str]) -> list[str]:
    """Submit a list, and kill the server once the first of its jobs has ended."""
    names = _list(expected)
    Client().jobs.wait(names[0])
    pid = find_server.look(settings.home()).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return names


def _burst(expected: Sequence[str], submit: Submit) -> tuple[dict[str, Any], list[list[str]]]:
    """Submit, wait for all, and only then, not timed, read what each of them said."""
    jobs = Client().jobs
    began = time.perf_counter()
    names = submit(expected)
    submitted = time.perf_counter() - began
    ended = [jobs.wait(name) for name in names]
    all_ended = time.perf_counter() - began
    said = []
    for name in names:
        text = io.StringIO()
        jobs.stream(name, to=text)
        said.append(text.getvalue().splitlines())
    told = [{"name": job.name, "status": job.status, "attempts": job.attempts} for job in ended]
    return {"submitted_s": submitted, "all_ended_s": all_ended, "ended": told}, said


def _wrong(
    ended: Sequence[dict[str, Any]], said: Sequence[list[str]], expected: Sequence[str]
) -> list[str]:
    found = []
    for job, lines, line in zip(ended, said, expected, strict=True):
        if (job["status"], job["attempts"]) != ("Completed", 1):
            found.append(f"{job['name']} is {job['status']} after {job['attempts']} attempts")
        if lines != [line]:
            found.append(f"{job['name']} should have said {line!r} once, its record has {lines!r}")
    return found


def _arrived(said: Sequence[list[str]], expected: Sequence[str]) -> str:
    counts = Counter(line for lines in said for line in lines)
    return f"{sum(counts[line] == 1 for line in expected)} of {len(expected)}"


def _bare(expected: Sequence[str]) -> None:
    waiting = list(expected)
    running: list[subprocess.Popen[bytes]] = []
    while waiting or running:
        while waiting and len(running) < _AT_A_TIME:
            argv = ["/bin/sh", "-c", f"echo {waiting.pop()}"]
            running.append(subprocess.Popen(argv, stdout=subprocess.DEVNULL))
        running.pop(0).wait()


@contextmanager
def _inside(home: Home) -> Iterator[None]:
    """The home as this process's own, for the SDK."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(home.env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
