"""`allranks top`: a live view of the active jobs and their resource use, or of a job's ranks."""

from __future__ import annotations

import argparse
import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.job_names import JobReference
from allranks.cli.output import colours, load, rank_table, show, tables
from allranks.cli.parser import duration
from allranks.core.amounts import counted
from allranks.core.metrics.across_ranks import mean
from allranks.http_client import Client
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import answered
from allranks.statuses import HELD

if TYPE_CHECKING:
    from allranks.api.common import Number
    from allranks.api.metrics import LiveJob, NodeLoad, RankTable

# CPU, MEMORY and RANKS are the job's own, the last a bar for the CPU use of each rank; the NODE
# columns count everything that runs there.
_HEAD = (
    "JOB",
    "STATUS",
    "NODE",
    "AGE",
    "CPU",
    "RANKS",
    "MEMORY",
    "GPU",
    "GPU MEMORY",
    "NODE CPU",
    "NODE MEMORY",
    "NODE NETWORK",
    "METRICS",
)
# Dropped in this order where the screen is narrow.
_OPTIONAL = (
    "NODE NETWORK",
    "NODE MEMORY",
    "NODE CPU",
    "GPU MEMORY",
    "AGE",
    "RANKS",
    "MEMORY",
    "NODE",
)
# Seconds: each refresh asks the server.
_MIN_INTERVAL = 0.1
_MAX_METRICS = 3
# The characters that metrics may take on any screen; a quarter of a wide one.
_MIN_METRICS = 24
# The most nodes with a row each, and bars for ranks.
_MAX_NODES, _MAX_BARS = 4, 32


def top_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "name", nargs="?", type=JobReference, metavar="NAME", help="a job, for a table of its ranks"
    )
    add = parser.add_mutually_exclusive_group().add_argument
    add("--once", action="store_true", help="print once (the default without a terminal)")
    add(
        "--interval",
        type=_interval,
        default=1.0,
        metavar="TIME",
        help="seconds between updates (1)",
    )


def _interval(text: str) -> float:
    seconds = duration(text)
    if not _MIN_INTERVAL <= seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of seconds >= {_MIN_INTERVAL}")
    return seconds


def top(options: argparse.Namespace) -> int:
    """Show the jobs, or the ranks of one, until `q` or Ctrl-C."""

    def ask(client: Client) -> Any:
        if options.name:
            return client.ask(routes.job_ranks, options.name)
        return client.ask(routes.live_jobs)

    if options.json:
        show.as_json(ask(find_server.connect()))
        return 0
    if options.once or not (sys.stdout.isatty() and sys.stdin.isatty()):
        answer = ask(find_server.connect())
        if options.name:
            _show_ranks(answer)
            return 0
        rows = _all_rows(answer)
        if sys.stdout.isatty():
            print(*_fitting(rows, os.get_terminal_size(1).columns or 80), sep="\n")
        else:
            show.columns(_HEAD, [(*row[:-1], _leading(row[-1])) for row in rows])
        return 0
    try:
        with _screen():
            while True:
                answer = answered(find_server.connect, ask)
                sys.stdout.write("\033[H")
                size = os.get_terminal_size()
                _draw_ranks(answer, size) if options.name else _draw(answer, size)
                sys.stdout.write("\033[J")
                sys.stdout.flush()
                if _pressed("q", options.interval):
                    return 0
    except KeyboardInterrupt:
        return 0


def _show_ranks(table: RankTable) -> None:
    for notice in rank_table.notices(table["slow_ranks"]):
        show.talk(notice)
    show.columns(rank_table.HEAD, rank_table.rows(table))


def _draw_ranks(table: RankTable, size: os.terminal_size) -> None:
    notices = [
        line
        for notice in rank_table.notices(table["slow_ranks"])
        for line in tables.wrapped(show.one_line(notice), size.columns)
    ]
    room = max(1, size.lines - len(notices) - 4)
    ranks = rank_table.shown(table, room)
    _draw_lines(f"{table['name']}: {table['status']}", [*notices, *ranks], size)


def _draw(jobs: list[LiveJob], size: os.terminal_size) -> None:
    count = counted(len(jobs), "job") if jobs else "no active jobs"
    _draw_lines(count, _fitting(_all_rows(jobs), size.columns), size)


def _draw_lines(about: str, body: list[str], size: os.terminal_size) -> None:
    now = datetime.now().astimezone().strftime("%H:%M:%S")
    lines = [f"allranks, {now}: {about}; q quits", *body]
    hidden = len(lines) - (size.lines - 1)
    if hidden > 0:
        lines = [*lines[: size.lines - 2], f"… and {hidden + 1} more lines"]
    for line in lines:
        sys.stdout.write(f"{tables.clipped(line, size.columns)}\033[K\r\n")


def _fitting(rows: list[tuple[str, ...]], width: int) -> list[str]:
    """The lines of the table without empty columns, and without optional ones that do not fit."""
    empty = [name for i, name in enumerate(_HEAD) if rows and all(row[i] == "-" for row in rows)]
    # Long names of metrics do not take the place of everything else.
    rows = [(*row[:-1], _leading(row[-1], max(_MIN_METRICS, width // 4))) for row in rows]
    for dropped in range(len(_OPTIONAL) + 1):
        hidden = {*empty, *_OPTIONAL[:dropped]}
        shown = [i for i, name in enumerate(_HEAD) if name not in hidden]
        lines = show.table([_HEAD[i] for i in shown], [[row[i] for i in shown] for row in rows])
        if max(map(len, lines)) <= width:
            break
    cells = [[show.one_line(row[i]) for i in shown] for row in rows]
    return tables.fitted([_HEAD[i] for i in shown], cells, None, colours.coloured(sys.stdout))


def _leading(metrics: str, width: int | None = None) -> str:
    """The first metrics, as many as fit but at least one, and how many more there are."""
    parts = metrics.split(", ")
    shown = parts[:_MAX_METRICS]
    while width is not None and len(shown) > 1 and len(", ".join(shown)) > width:
        shown.pop()
    more = len(parts) - len(shown)
    return ", ".join(shown) + (f" +{more}" if more else "")


def _all_rows(jobs: list[LiveJob]) -> list[tuple[str, ...]]:
    return [row for job in jobs for row in _rows(job)]


def _rows(job: LiveJob) -> Iterator[tuple[str, ...]]:
    """A row for each node, or for many nodes together; one for a job without measurements yet."""
    metrics = ", ".join(_values(job["metrics"]))
    started = datetime.fromisoformat(job["started_at"] or job["created_at"])
    age = show.seconds((datetime.now(UTC) - started).total_seconds())
    held = (job["status_reason"] or "").startswith(HELD)
    status = "Held" if held else job["status"]
    nodes = [each for each in job["load"] if each["now"]]
    rows = [[node] for node in nodes] if len(nodes) <= _MAX_NODES else [nodes]
    if not nodes:
        yield (job["name"], status, "-", age, *["-"] * 8, metrics)
    for number, several in enumerate(rows):
        first = number == 0
        yield (
            job["name"] if first else "",
            status if first else "",
            str(several[0]["node"]) if len(several) == 1 else counted(len(several), "node"),
            age if first else "",
            *_use(several),
            metrics if first else "",
        )


def _values(metrics: Mapping[str, Number]) -> list[str]:
    """Each metric with its value; of several ranks with the mean, or with what is no number."""
    ranks: dict[str, list[Number]] = {}
    for name, value in metrics.items():
        ranks.setdefault(name.partition("/rank_")[0], []).append(value)
    return [f"{name} {show.number(_mean(values))}" for name, values in ranks.items()]


def _mean(values: list[Number]) -> Number:
    numbers = [value for value in values if not isinstance(value, str)]
    strange = [value for value in values if isinstance(value, str)]
    return strange[0] if strange else mean(numbers)


def _use(nodes: list[NodeLoad]) -> tuple[str, ...]:
    """The columns from CPU to NODE NETWORK: means of shares, and sums of amounts."""
    gpus = [gpu for node in nodes for gpu in node["gpus"]]
    whole = [node["node_load"] for node in load.hosts(nodes)]
    own = {**load.summed(nodes, "memory"), **load.summed(load.hosts(nodes), "memory_total")}
    return (
        load.percent(load.mean(nodes, "cpu")),
        load.of_ranks(nodes, _MAX_BARS) or "-",
        load.memory(own),
        load.percent(load.mean(gpus, "gpu_load")),
        load.memory(load.summed(gpus, "gpu_memory", "gpu_memory_total"), "gpu_memory"),
        load.percent(load.mean(whole, "cpu")),
        load.memory(load.summed(whole, "memory", "memory_total")),
        load.rate(load.summed(whole, "net_in", "net_out"), "net_in", "net_out"),
    )


@contextmanager
def _screen() -> Iterator[None]:
    """Switch to the terminal's alternate screen, without cursor and line buffering."""
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
    """Wait for the key or the end of stdin, at most this many seconds."""
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        if select.select([0], [], [], remaining)[0] and os.read(0, 1) in (key.encode(), b""):
            return True
    return False
