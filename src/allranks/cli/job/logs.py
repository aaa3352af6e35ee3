"""`allranks job stream` and `logs`: what ranks printed."""

from __future__ import annotations

import argparse
import threading
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.job.follow_or_detach import follow_to_end
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.output.rank_output import Printer, releasing
from allranks.errors import NotFound, UsageError
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import Following

if TYPE_CHECKING:
    from allranks.api.common import Document
    from allranks.api.jobs import JobRecord, LogLine

NEWEST = -1
_RAW = "print output as the ranks wrote it: redrawn lines, and what a terminal obeys"
NO_FOLD = "print the lines of each rank, also where ranks print the same (terminals, 9 ranks on)"


def stream_options(parser: argparse.ArgumentParser) -> None:
    job_argument(parser)
    parser.add_argument("--rank", action="append", type=int, metavar="R", help="only this rank")
    parser.add_argument(
        "--prefix", action=argparse.BooleanOptionalAction, help="prefix lines with the rank"
    )
    parser.add_argument("--raw", action="store_true", help=_RAW)
    parser.add_argument("--no-fold", action="store_true", help=NO_FOLD)


def stream(options: argparse.Namespace) -> int:
    """The output of all ranks from the start to the end; exits with the job's exit code."""
    job = find_server.connect().ask(routes.show_job, options.name)
    if job["type"] == "command":
        _check_ranks(job, options.rank)
    return follow_to_end(
        options,
        job,
        ranks=options.rank,
        prefixed=options.prefix,
        raw=options.raw,
        fold=not options.no_fold,
    )


def _count(text: str) -> int:
    if int(text) < 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return int(text)


def logs_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    job_argument(parser)
    add("--rank", action="append", type=int, metavar="R", help="only this rank")
    add("--node", action="append", type=int, metavar="N", help="only the ranks of this node")
    add("--attempt", type=int, metavar="A", help="this attempt (the newest)")
    follow = "keep printing until the job ends; exits 0 however it ends (`job stream`: its code)"
    add("-f", "--follow", action="store_true", help=follow)
    add("--tail", type=_count, metavar="K", help="the last K lines of each rank; -f: then new ones")
    add("--prefix", action=argparse.BooleanOptionalAction, help="prefix lines with the rank")
    add("--raw", action="store_true", help=_RAW)
    add("--no-fold", action="store_true", help=NO_FOLD)


def logs(options: argparse.Namespace) -> int:
    """The output of one attempt, rank by rank. Exits 0, also for a failed job, as `kubectl logs -f`
    does: it shows logs, and `stream` and `wait` answer how the job ended."""
    if options.follow and options.json:
        raise UsageError("--follow cannot be used with --json", hint="leave one out")
    job = find_server.connect().ask(routes.show_job, options.name)
    if job["type"] != "command":
        best = job.get("best")
        child = best["job"] if best else "CHILD"
        hint = f"allranks job logs {child}; of all its jobs: allranks job stream {job['name']}"
        message = f"{job['name']} is a {job['type']} and has no output of its own"
        raise UsageError(message, hint=hint)
    ranks = _ranks(job, options)
    if options.attempt is not None and not 1 <= options.attempt <= job["attempts"]:
        hint = f"its attempts are 1 to {job['attempts']}"
        raise NotFound(f"{job['name']} has no attempt {options.attempt}", hint=hint)
    attempts = [options.attempt or NEWEST]
    prefixed = False if options.json else options.prefix
    chosen = ranks if ranks is not None else [each["rank"] for each in job["ranks"]]
    fold = 0 if options.no_fold else len(chosen)
    printer = Printer(job["nodes"], prefixed=prefixed, raw=options.raw, fold=fold)
    if options.follow:
        request = {"ranks": ranks, "attempts": attempts, "tail": options.tail}
        writing = threading.Lock()
        with releasing(printer, writing):
            for piece in Following(find_server.connect, job["name"], request=request).pieces():
                with writing:
                    printer.put(piece)
        printer.end()
        return 0
    outputs = (_of_rank(job["name"], rank, attempts, options.tail) for rank in sorted(chosen))
    if options.json:
        show.as_json([_whole(pieces) for pieces in map(list, outputs) if pieces])
        return 0
    for pieces in outputs:
        for piece in pieces:
            printer.put(piece)
        if not printer.folds:
            printer.end()
    printer.end()
    return 0


def _of_rank(name: str, rank: int, attempts: list[int], tail: int | None) -> Iterator[LogLine]:
    """The output of one rank so far, or its last lines, in pieces."""
    request: dict[str, Any] = {"ranks": [rank], "attempts": attempts, "follow": False}
    if tail is not None:
        request["tail"] = max(1, tail)
    pieces = Following(find_server.connect, name, request=request).pieces()
    if tail is None:
        yield from pieces
        return
    rest, lines, last = "", deque[str](maxlen=tail), None
    for piece in pieces:
        *whole, rest = (rest + piece["log"]).split("\n")
        lines.extend(line + "\n" for line in whole)
        last = piece
    if rest:
        lines.append(rest)
    if last is not None:
        yield {**last, "log": "".join(lines)}


def _whole(pieces: list[LogLine]) -> dict[str, int | str]:
    text = "".join(piece["log"] for piece in pieces)
    shown = text.encode(errors="surrogateescape").decode(errors="replace")
    first = pieces[0]
    return {"rank": first["rank"], "node": first["node"], "attempt": first["attempt"], "log": shown}


def _ranks(job: JobRecord, options: argparse.Namespace) -> list[int] | None:
    _check_ranks(job, options.rank)
    if options.node is None:
        ranks: list[int] | None = options.rank
        return ranks
    for node in options.node:
        if not 0 <= node < job["nodes"]:
            last = job["nodes"] - 1
            hint = f"its nodes are 0 to {last}" if last else "it has one node, 0"
            raise NotFound(f"{job['name']} has no node {node}", hint=hint)
    on_nodes = [each["rank"] for each in job["ranks"] if each["node"] in options.node]
    return [rank for rank in on_nodes if options.rank is None or rank in options.rank]


def _check_ranks(job: JobRecord, ranks: list[int] | None) -> None:
    for rank in ranks or ():
        if not 0 <= rank < job["processes"]:
            hint = f"its ranks are 0 to {job['processes'] - 1}"
            raise NotFound(f"{job['name']} has no rank {rank}", hint=hint)


def expect_ranks(spec: Document, ranks: list[int]) -> None:
    """Raise UsageError for a rank that the job will not have. Distributions with roles are skipped,
    because their number of ranks differs."""
    # lazy: logs of jobs need nothing of the plan
    from allranks.core.distributions.topology import ONE_EACH

    try:
        distribution, nodes = spec.get("distribution") or {}, spec["resources"]["instance_count"]
        procs = distribution.get("process_count_per_instance") or 1
        has_roles = str(distribution.get("type")).lower() in ONE_EACH
        count = int(nodes) * int(procs)
    except (AttributeError, KeyError, TypeError, ValueError):
        return  # it will be refused with a better message
    for rank in () if has_roles else ranks:
        if not 0 <= rank < count:
            hint = f"its ranks are 0 to {count - 1}"
            raise UsageError(f"the job has no rank {rank}", where="--rank", hint=hint)
