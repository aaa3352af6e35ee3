"""`allranks job profile`: what the ranks of a running job spend their time on, and one verdict."""

from __future__ import annotations

import argparse
import contextlib
import time
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.cli.parser import duration, refuse_with
from allranks.core.amounts import size_text
from allranks.errors import AllranksError, UsageError
from allranks.sdk.connection import find_server

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
    add(
        "--seconds",
        type=duration,
        default=_SECONDS,
        metavar="TIME",
        help="the length of the window (5)",
    )
    add("--ranks", metavar="R,…", help="only these ranks: 0,2 or 0-3 (all)")
    add("--kind", choices=_KINDS, default="auto", help="what is recorded (auto: python)")
    add("--last", action="store_true", help="show the newest profile that was kept")
    add("--against", metavar="JOB", help="compare with the newest profile of another job")


def profile(options: argparse.Namespace) -> int:
    """Profile all ranks at once and say what holds the job up."""
    client = find_server.connect()
    if options.last:
        window = {"--seconds": options.seconds != _SECONDS, "--ranks": options.ranks}
        refuse_with("--last", {**window, "--kind": options.kind != "auto"})
    # Before the window: it may not have one.
    other = client.ask(routes.show_profile, options.against) if options.against else None
    if options.last:
        answer = client.ask(routes.show_profile, options.name)
    else:
        if not options.quiet and not options.json:
            show.talk(f"recording {options.name} for {options.seconds:g} s …")
        body = {"kind": options.kind, "seconds": options.seconds, "ranks": _ranks(options.ranks)}
        patience = options.seconds + _PATIENCE
        try:
            answer = client.ask(routes.start_profile, options.name, body=body, patience=patience)
        except KeyboardInterrupt:
            with contextlib.suppress(AllranksError):
                find_server.ask(routes.stop_profile, options.name)
            raise
    if options.json:
        show.as_json({**answer, "against": other} if other else answer)
        return 0
    _show(answer)
    if other is not None:
        _compare(answer, other)
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


def _show(answer: ProfileAnswer) -> None:
    verdict: Any = answer["verdict"]
    at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(answer["at"]))
    show.line(f"{verdict['kind']}: {verdict['message']}")
    if verdict["gain"]:
        show.line(f"  without it the job could be up to {verdict['gain']:.1f} × as fast")
    if verdict["hint"]:
        show.line(f"  hint: {verdict['hint']}")
    if verdict["ranks"]:
        show.line("")
        show.line("  rank " + " ".join(f"{name:>10}" for name in _PHASES) + "  no CPU  comes last")
    for rank in verdict["ranks"]:
        shares = (rank["shares"].get(name, 0.0) for name in _PHASES)
        last = f"{rank['last']} of {verdict['collectives']}" if verdict["collectives"] else "-"
        row = " ".join(f"{share:>10.0%}" for share in shares)
        show.line(f"  {rank['rank']:>4} {row}  {rank['starved']:>6.0%}  {last}")
    for rank in answer["memory"]:
        _show_memory(rank)
    if answer["operators"]:
        show.line("")
        show.line("  top operators of torch:")
    for operator in answer["operators"]:
        times = f"{operator['share']:>6.1%} {operator['seconds']:>8.3f} s {operator['calls']:>8}×"
        show.line(f"  {times}  {operator['name']} ({operator['device']})")
    for gap in answer["missing"]:
        who = f"node {gap['node']}" if gap["rank"] is None else f"rank {gap['rank']}"
        show.talk(f"{who}: {gap['why']}")
    show.talk(
        f"\nattempt {answer['attempt']} at {at}; files for Perfetto, speedscope and a browser:"
    )
    show.talk(f"{answer['folder']}")


def _show_memory(rank: Any) -> None:
    before, after = rank["resident"]
    show.line(f"  rank {rank['rank']}: {size_text(before)} of memory, then {size_text(after)}")
    for file, line, size, count in rank["lines"][:5]:
        show.line(f"    +{size_text(size)} in {count} blocks, {file}:{line}")
    for index, gpu in enumerate(rank.get("gpus", ())):
        used, held = (size_text(gpu[key]) for key in ("allocated_bytes", "reserved_bytes"))
        show.line(f"    GPU {index}: tensors hold {used}, torch {held}")


def _compare(answer: ProfileAnswer, other: ProfileAnswer) -> None:
    """The mean share of each phase in both jobs."""
    verdict: Any = other["verdict"]
    show.line("")
    show.line(f"against {other['job']}: {verdict['kind']}: {verdict['message']}")
    for name in _PHASES:
        mine, theirs = _mean(answer, name), _mean(other, name)
        if max(mine, theirs) >= 0.01:
            show.line(f"  {name:<10} {theirs:>5.0%} → {mine:>4.0%} ({mine - theirs:+.0%})")


def _mean(answer: ProfileAnswer, phase: str) -> float:
    verdict: Any = answer["verdict"]
    shares = [rank["shares"].get(phase, 0.0) for rank in verdict["ranks"]]
    return sum(shares) / len(shares) if shares else 0.0
