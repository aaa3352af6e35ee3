"""`allranks top`: the jobs that have not ended and what they use, again and again."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from allranks.cli.output import colours, load, show, tables
from allranks.plan.amounts import counted
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import answered

# CPU and MEMORY are the job's own, those of the NODE are of all that runs there.
_HEAD = (
    *("JOB", "STATUS", "NODE", "AGE", "CPU", "MEMORY", "GPU", "GPU MEMORY"),
    *("NODE CPU", "NODE MEMORY", "NODE NETWORK", "METRICS"),
)
# The least time between two looks: each asks the server.
_LEAST = 0.1
# Metrics that a line has room for, and the columns that go first where the screen is narrow.
_METRICS = 3
_LESS = (
    *("NODE NETWORK", "NODE MEMORY", "NODE CPU", "GPU MEMORY"),
    *("AGE", "MEMORY", "NODE"),
)


def top_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--once", action="store_true", help="print it once (so it is without a terminal)")
    add("--interval", type=_interval, default=1.0, metavar="S", help="seconds between looks (1)")


def _interval(text: str) -> float:
    seconds = float(text)
    if not _LEAST <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds from {_LEAST} on")
    return seconds


def top(options: argparse.Namespace) -> int:
    """Show until `q` or Ctrl-C."""
    if options.json:
        show.as_json(_jobs())
        return 0
    if options.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        _print(_jobs())
        return 0
    try:
        with _screen():
            while True:
                jobs = answered(find_server.connect, _ask)
                sys.stdout.write("\033[H")
                _print(jobs, os.get_terminal_size())
                sys.stdout.write("\033[J")
                sys.stdout.flush()
                if _pressed("q", options.interval):
                    return 0
    except KeyboardInterrupt:
        return 0


def _jobs() -> list[dict[str, Any]]:
    with find_server.connect() as client:
        return _ask(client)


def _ask(client: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.json("GET", "/api/v1/top")
    return found


def _print(jobs: list[dict[str, Any]], size: os.terminal_size | None = None) -> None:
    rows = [row for job in jobs for row in _rows(job)]
    if size is None:
        show.columns(_HEAD, rows)
        return
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    many = "no job runs" if not jobs else counted(len(jobs), "job")
    lines = [f"allranks, {now}: {many}; q ends this", *_fitting(rows, size.columns)]
    hidden = len(lines) - (size.lines - 1)
    if hidden > 0:
        lines = [*lines[: size.lines - 2], f"… and {hidden + 1} lines more"]
    for line in lines:
        sys.stdout.write(f"{tables.clipped(line, size.columns)}\033[K\r\n")


def _fitting(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """The lines of the table, with as many columns as fit beside the metrics; those in which
    nothing stands are left out."""
    empty = [name for i, name in enumerate(_HEAD) if rows and all(row[i] == "-" for row in rows)]
    for dropped in range(len(_LESS) + 1):
        gone = {*empty, *_LESS[:dropped]}
        kept = [i for i, name in enumerate(_HEAD) if name not in gone]
        lines = show.table([_HEAD[i] for i in kept], [[row[i] for i in kept] for row in rows])
        if max(map(len, lines)) <= width:
            break
    cells = [[show.one_line(row[i]) for i in kept] for row in rows]
    coloured = colours.coloured(sys.stdout)
    return tables.fitted([_HEAD[i] for i in kept], cells, None, coloured)


def _rows(job: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """A line for each node; one for a job of which nothing was measured yet."""
    metrics = [f"{name} {show.number(value)}" for name, value in job["metrics"].items()]
    more = f" +{len(metrics) - _METRICS}" if len(metrics) > _METRICS else ""
    first = (job["name"], job["status"])
    told = ", ".join(metrics[:_METRICS]) + more
    loads = [each for each in job["load"] if each["now"]]
    if not loads:
        yield (*first, "-", _age(job), *["-"] * 7, told)
    for number, node in enumerate(loads):
        gpus = node["gpus"]
        used = {name: sum(g.get(name, 0) for g in gpus) for name in _SUMS}
        yield (
            *(first if number == 0 else ("", "")),
            str(node["node"]),
            _age(job) if number == 0 else "",
            load.percent(node.get("cpu")),
            load.memory(node),
            load.percent(load.mean(gpus, "gpu_load")),
            load.memory(used, "gpu_memory") if gpus else "-",
            load.percent(node["node_load"].get("cpu")),
            load.memory(node["node_load"]),
            load.rate(node["node_load"], "net_in", "net_out"),
            told if number == 0 else "",
        )


_SUMS = ("gpu_memory", "gpu_memory_total")


def _age(job: dict[str, Any]) -> str:
    since = datetime.fromisoformat(job["started_at"] or job["created_at"])
    return show.seconds((datetime.now(UTC) - since).total_seconds())


@contextmanager
def _screen() -> Iterator[None]:
    """A screen of its own, no cursor, keys as they are pressed; then the old one again."""
    before = termios.tcgetattr(0)
    sys.stdout.write("\033[?1049h\033[?25l")
    try:
        tty.setcbreak(0)
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        sys.stdout.write("\033[?25h\033[?1049l")
        sys.stdout.flush()


def _pressed(key: str, seconds: float) -> bool:
    """Wait so long, or until the key is pressed."""
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if select.select([0], [], [], left)[0] and os.read(0, 1) in (key.encode(), b""):
            return True
    return False
