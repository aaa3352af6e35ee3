"""Many one-rank jobs at once from one Python process; did all that they said arrive?"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from allranks import Client, command
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, table

# Bare processes are run so many at a time: one a core of the machine the bars were set on.
_AT_A_TIME = 2


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--jobs", type=int, default=50, metavar="N", help="jobs of the burst (50)")


def run(given: argparse.Namespace) -> Result:
    expected = [f"job {i} says {os.urandom(6).hex()}" for i in range(given.jobs)]
    bare = procs.timed(lambda: _bare(expected))
    with Home() as home, _inside(home):
        home.allranks("run", "--", "true")  # the server runs, and has run a job
        data, said = _burst(expected)
    wrong = [*_wrong(data["ended"], said, expected), *home.left]
    rate = given.jobs / data["all_ended_s"]
    rows = [
        (
            "allranks, Python SDK",
            f"{data['all_ended_s']:.2f}",
            f"{rate:.1f}",
            _arrived(said, expected),
        ),
        (f"bare processes, {_AT_A_TIME} at a time", f"{bare:.2f}", f"{given.jobs / bare:.1f}", "-"),
    ]
    head = (f"{given.jobs} one-rank jobs", "seconds", "done/s", "output arrived once")
    accepted = given.jobs / data["submitted_s"]
    text = (
        table(head, rows)
        + f"\naccepted: {given.jobs} in {data['submitted_s']:.2f} s, {accepted:.0f}/s"
    )
    return Result(
        name="burst",
        text=text,
        data={"jobs": given.jobs, "bare_s": bare, **data},
        bars=[Bar(what="jobs done per second", found=rate, least=10.0)],
        wrong=wrong,
    )


def _burst(expected: Sequence[str]) -> tuple[dict[str, Any], list[list[str]]]:
    """Submit, wait for all, and only then, not timed, read what each of them said."""
    jobs = Client().jobs
    began = time.perf_counter()
    names = [jobs.create_or_update(command(command=f"echo {line}")).name for line in expected]
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
