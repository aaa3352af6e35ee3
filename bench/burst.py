"""Many one-rank jobs at once from one Python process; did all that they said arrive?"""

from __future__ import annotations

import argparse
import io
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from typing import NamedTuple

from allranks import Client, Job, command, settings
from allranks.sdk.connection import find_server
from bench import procs
from bench.home import Home
from bench.report import Bar, Result, table

# Bare processes are run so many at a time: one a core of the machine the bars were set on.
_AT_A_TIME = 2


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--jobs", type=int, default=50, metavar="N", help="jobs of a burst (50)")
    add("--bursts", type=int, default=3, metavar="N", help="bursts of each kind, in turn (3)")


def run(given: argparse.Namespace) -> Result:
    accepted: dict[str, list[float]] = {name: [] for name in WAYS}
    done: dict[str, list[float]] = {name: [] for name in (*WAYS, BARE)}
    arrived, wrong = Counter[str](), list[str]()
    for _ in range(given.bursts):
        for name, submit in WAYS.items():
            expected = [f"job {i} says {os.urandom(6).hex()}" for i in range(given.jobs)]
            with Home() as home, _inside(home):
                home.allranks("run", "--", "true")  # the server runs, and has run a job
                found = _burst(home, expected, submit)
            wrong += [*_wrong(found, expected), *home.left]
            accepted[name].append(given.jobs / found.submitted)
            done[name].append(given.jobs / found.ended)
            arrived[name] += _arrived(found.said, expected)
        done[BARE].append(given.jobs / procs.timed(partial(_bare, expected)))
    del accepted[KILLED]  # the wait for its first job is part of it
    return Result(
        name="burst",
        text=_table(given, accepted, done, arrived),
        samples={"accepted/s": accepted, "done/s": done},
        data={"jobs": given.jobs},
        bars=[
            Bar(what=f"{LIST}: accepted/s", found=median(accepted[LIST]), least=300.0),
            Bar(what=f"{LIST}: done/s", found=median(done[LIST]), least=40.0),
            Bar(what=f"{DETACHED}: accepted/s", found=median(accepted[DETACHED]), least=12.0),
        ],
        wrong=wrong,
    )


def _table(
    given: argparse.Namespace,
    accepted: Mapping[str, Sequence[float]],
    done: Mapping[str, Sequence[float]],
    arrived: Mapping[str, int],
) -> str:
    rows = [
        (
            name,
            f"{median(accepted[name]):.0f}" if name in accepted else "-",
            f"{median(rates):.1f}",
            f"{min(rates):.1f}",
            f"{max(rates):.1f}",
            f"{arrived[name]} of {given.jobs * given.bursts}" if name in arrived else "-",
        )
        for name, rates in done.items()
    ]
    title = f"{given.bursts} × {given.jobs} one-rank jobs, medians"
    return table((title, "accepted/s", "done/s", "min", "max", "output arrived once"), rows)


def _one_by_one(home: Home, expected: Sequence[str]) -> list[str]:
    jobs = Client().jobs
    return [jobs.create_or_update(command(command=f"echo {line}")).name for line in expected]


def _list(home: Home, expected: Sequence[str]) -> list[str]:
    made = [command(command=f"echo {line}") for line in expected]
    return [job.name for job in Client().jobs.create_or_update(made)]


def _detached(home: Home, expected: Sequence[str]) -> list[str]:
    """A process of the command line for each job, as a shell's loop starts them."""
    words = ("run", "--detach", "--json", "--", "echo")
    return [home.told(*words, *line.split())["name"] for line in expected]


def _killed(home: Home, expected: Sequence[str]) -> list[str]:
    """Submit a list, and kill the server once the first of its jobs has ended."""
    names = _list(home, expected)
    Client().jobs.wait(names[0])
    pid = find_server.look(settings.home()).pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    return names


ONE_BY_ONE, LIST = "Python SDK, one by one", "Python SDK, a list"
KILLED, DETACHED = "Python SDK, a list, server killed", "allranks run --detach, one by one"
Submit = Callable[[Home, Sequence[str]], list[str]]
BARE = f"bare processes, {_AT_A_TIME} at a time"
WAYS = {ONE_BY_ONE: _one_by_one, LIST: _list, KILLED: _killed, DETACHED: _detached}


class Found(NamedTuple):
    """Seconds until all were submitted and until all had ended; the jobs, and what each said."""

    submitted: float
    ended: float
    jobs: list[Job]
    said: list[list[str]]


def _burst(home: Home, expected: Sequence[str], submit: Submit) -> Found:
    """Submit, wait for all, and only then, not timed, read what each of them said."""
    jobs = Client().jobs
    began = time.perf_counter()
    names = submit(home, expected)
    submitted = time.perf_counter() - began
    ended = [jobs.wait(name) for name in names]
    all_ended = time.perf_counter() - began
    said = []
    for name in names:
        text = io.StringIO()
        jobs.stream(name, to=text)
        said.append(text.getvalue().splitlines())
    return Found(submitted, all_ended, ended, said)


def _wrong(found: Found, expected: Sequence[str]) -> Iterator[str]:
    for job, lines, line in zip(found.jobs, found.said, expected, strict=True):
        if (job.status, job.attempts) != ("Completed", 1):
            yield f"{job.name} is {job.status} after {job.attempts} attempts"
        if lines != [line]:
            yield f"{job.name} should have said {line!r} once, its record has {lines!r}"


def _arrived(said: Sequence[list[str]], expected: Sequence[str]) -> int:
    counts = Counter(line for lines in said for line in lines)
    return sum(counts[line] == 1 for line in expected)


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
