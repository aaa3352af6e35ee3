"""`allranks job stacks`: the stacks of a job's processes."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.cli.job_names import job_argument
from allranks.cli.output import show
from allranks.core.diagnosis.stacks import numbers
from allranks.errors import NotFound
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.jobs import Collectives, Frame, StackGroup

# The number of stack lines shown; `--all` shows all.
_MOST = 12


def stacks_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    job_argument(parser)
    add("--rank", action="append", type=int, metavar="R", help="only this rank")
    add = parser.add_mutually_exclusive_group().add_argument
    add("--all", action="store_true", help="full stacks of all known threads")
    add("--collectives", action="store_true", help="which rank keeps which waiting in torch")


def stacks(options: argparse.Namespace) -> int:
    """The stacks of all ranks, equal ones grouped."""
    answer = find_server.connect().ask(routes.job_stacks, options.name)
    if options.rank is not None:
        ranks = set(options.rank)
        answer["groups"] = [each for each in answer["groups"] if ranks & set(each["ranks"])]
        answer["processes"] = [
            process for process in answer["processes"] if process["rank"] in ranks
        ]
        if not answer["processes"]:
            hint = f"see which ranks it has: allranks job show {options.name}"
            message = f"no stacks are known for rank {options.rank[0]} of {options.name}"
            raise NotFound(message, hint=hint)
    if options.json:
        show.as_json(answer)
        return 0
    if not answer["live"]:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(answer["at"]))
        show.talk(f"{options.name} has ended; stacks of attempt {answer['attempt']} at {at}")
    for missing in answer["missing"]:
        show.talk(f"node {missing} did not answer in time")
    if options.collectives:
        return _collectives(options.name, answer["collectives"], set(options.rank or ()))
    for index, group in enumerate(answer["groups"]):
        print("\n" * (index > 0), end="")
        _group(group, options.all)
    if answer["odd"] is not None and not options.quiet:
        odd = answer["odd"]
        show.talk(f"\ndiffers from most: rank {odd['rank']} on node {odd['node']}, in {odd['at']}")
    return 0


def _collectives(name: str, recorded: Collectives | None, ranks: set[int]) -> int:
    if recorded is None:
        hint = f"torch records them on gloo from 2.9 on; see `allranks job stacks {name}`"
        raise NotFound(f"no rank of {name} has recorded collectives", hint=hint)
    show.line(recorded["message"])
    for call in recorded["last"]:
        if not ranks or call["rank"] in ranks:
            at = time.strftime("%H:%M:%S", time.localtime(call["since"]))
            sizes = "".join(f" {size}" for size in call["sizes"][:3])
            state = "waits in" if call["pending"] else "has finished"
            where = f", {call['place']}" if call["place"] else ""
            what = f"{call['operation']} #{call['number']}{sizes} of {call['group']}"
            show.line(f"  rank {call['rank']} {state} {what}{where}, called {at}")
    return 0


def _group(each: StackGroup, whole: bool) -> None:
    several = len(each["ranks"]) > 1
    who = f"rank{'s' * several} {numbers(each['ranks'])}"
    if not each["own"]:
        count = each["count"]
        who = f"{count} process{'es' * (count > 1)} of {who}"
    elif several:
        who += f" ({each['count']})"
    are = "are" if several or each["count"] > 1 else "is"
    show.line(f"{who} {are} {each['doing']}")
    if each["why"]:
        show.line(f"  {each['name']}: {each['why']}")
    _frames(each["stack"], whole)
    for thread in each["threads"] if whole else ():
        show.line(f"  thread {thread['name'] or '?'}")
        _frames(thread["frames"], whole)


def _frames(stack: list[Frame], whole: bool) -> None:
    shown = stack if whole or len(stack) <= _MOST else stack[:_MOST]
    for frame in shown:
        text = f"  {frame['text']}" if frame["text"] else ""
        show.line(f"  {frame['file']}:{frame['line']} {frame['function']}{text}")
    if len(shown) < len(stack):
        show.line(f"  … and {len(stack) - len(shown)} more: --all")
