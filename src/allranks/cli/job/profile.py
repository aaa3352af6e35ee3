"""`allranks job profile`: what the ranks of a running job spend their time on, and one verdict."""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.parser import refuse_with
from allranks.core.amounts import size_text
from allranks.errors import AllranksError, ServerError, UsageError
from allranks.http_client import read_json
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path

if TYPE_CHECKING:
    from allranks.api.jobs import ProfileAnswer

_KINDS = ("auto", "python", "torch", "memory")
# Seconds of the window, and beyond it that an answer may take.
_SECONDS = 5.0
_PATIENCE = 90.0
_PHASES = ("input", "forward", "backward", "optimizer", "checkpoint", "other", "collective")


def profile_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    job_argument(parser)
    add("--seconds", type=float, default=_SECONDS, metavar="S", help="the length of the window (5)")
    add("--ranks", metavar="R,…", help="only these ranks: 0,2 or 0-3 (all)")
    add("--kind", choices=_KINDS, default="auto", help="what is recorded (auto: python)")
    add("--last", action="store_true", help="show the newest profile that was kept")
    add("--against", metavar="JOB", help="compare with the newest profile of another job")


def profile(options: argparse.Namespace) -> int:
    """Profile all ranks at once and say what holds the job up."""
    client = find_server.connect()
    path = job_path(options.name, "/profile")
    if options.last:
        window = {"--seconds": options.seconds != _SECONDS, "--ranks": options.ranks}
        refuse_with("--last", {**window, "--kind": options.kind != "auto"})
    # Before the window: it may not have one.
    other = client.json("GET", job_path(options.against, "/profile")) if options.against else None
    if options.last:
        answer: ProfileAnswer = client.json("GET", path)
    else:
        if not options.quiet and not options.json:
            show.talk(f"recording {options.name} for {options.seconds:g} s …")
        body = {"kind": options.kind, "seconds": options.seconds, "ranks": _ranks(options.ranks)}
        words = json.dumps(body).encode()
        try:
            reply = client.call("POST", path, words, timeout=options.seconds + _PATIENCE)
        except KeyboardInterrupt:
            with contextlib.suppress(AllranksError):
                find_server.connect().json("DELETE", path)
            raise
        answer = read_json(reply)
    if options.json:
        show.as_json({**answer, "against": other} if other else answer)
        return 0
    lines, notes = _read(answer, other)
    for line in lines:
        show.line(line)
    for note in notes:
        show.talk(note)
    return 0


def _ranks(text: str | None) -> list[int]:
    """Raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(",") if text else ():
        low, _, high = part.partition("-")
        try:
            numbers |= {*range(int(low), int(high or low) + 1)}
        except ValueError:
            raise UsageError(f"{part!r} is no rank", hint="write 0,2 or 0-3") from None
    return sorted(numbers)


def _read(answer: ProfileAnswer, other: ProfileAnswer | None) -> tuple[list[str], list[str]]:
    """The lines to print, and the notes. Raises ServerError for an answer that is none: a job can
    write to its record."""
    try:
        lines = [*_lines(answer), *(_against(answer, other) if other is not None else ())]
        return lines, [*_notes(answer)]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        hint = "record a new one, without --last and --against"
        raise ServerError("the profile is damaged: it has other parts", hint=hint) from None


def _lines(answer: ProfileAnswer) -> Iterator[str]:
    verdict: Any = answer["verdict"]
    yield f"{verdict['kind']}: {verdict['message']}"
    if verdict["gain"]:
        yield f"  without it the job could be up to {verdict['gain']:.1f} × as fast"
    if verdict["hint"]:
        yield f"  hint: {verdict['hint']}"
    if verdict["ranks"]:
        yield ""
        yield "  rank " + " ".join(f"{name:>10}" for name in _PHASES) + "  no CPU  comes last"
    for rank in verdict["ranks"]:
        shares = (rank["shares"].get(name, 0.0) for name in _PHASES)
        last = f"{rank['last']} of {verdict['collectives']}" if verdict["collectives"] else "-"
        row = " ".join(f"{share:>10.0%}" for share in shares)
        yield f"  {rank['rank']:>4} {row}  {rank['starved']:>6.0%}  {last}"
    for rank in answer["memory"]:
        yield from _of_memory(rank)
    if answer["operators"]:
        yield ""
        yield "  top operators of torch:"
    for operator in answer["operators"]:
        times = f"{operator['share']:>6.1%} {operator['seconds']:>8.3f} s {operator['calls']:>8}×"
        yield f"  {times}  {operator['name']} ({operator['device']})"


def _notes(answer: ProfileAnswer) -> Iterator[str]:
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(answer["at"]))
    for gap in answer["missing"]:
        who = f"node {gap['node']}" if gap["rank"] is None else f"rank {gap['rank']}"
        yield f"{who}: {gap['why']}"
    yield f"\nattempt {answer['attempt']} at {at}; files for Perfetto, speedscope and a browser:"
    yield f"{answer['folder']}"


def _of_memory(rank: Any) -> Iterator[str]:
    before, after = rank["resident"]
    yield f"  rank {rank['rank']}: {size_text(before)} of memory, then {size_text(after)}"
    for file, line, size, count in rank["lines"][:5]:
        yield f"    +{size_text(size)} in {count} blocks, {file}:{line}"
    for index, gpu in enumerate(rank.get("gpus", ())):
        tensors, reserved = (size_text(gpu[key]) for key in ("allocated_bytes", "reserved_bytes"))
        yield f"    GPU {index}: tensors hold {tensors}, torch {reserved}"


def _against(answer: ProfileAnswer, other: ProfileAnswer) -> Iterator[str]:
    """The mean share of each phase in both jobs."""
    verdict: Any = other["verdict"]
    yield ""
    yield f"against {other['job']}: {verdict['kind']}: {verdict['message']}"
    for name in _PHASES:
        mine, theirs = _mean(answer, name), _mean(other, name)
        if max(mine, theirs) >= 0.01:
            yield f"  {name:<10} {theirs:>5.0%} → {mine:>4.0%} ({mine - theirs:+.0%})"


def _mean(answer: ProfileAnswer, phase: str) -> float:
    verdict: Any = answer["verdict"]
    shares = [rank["shares"].get(phase, 0.0) for rank in verdict["ranks"]]
    return sum(shares) / len(shares) if shares else 0.0
