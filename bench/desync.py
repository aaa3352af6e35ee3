"""Desyncs: of ranks that disagree on a collective, is the right one told? Are healthy ones left?"""

from __future__ import annotations

import argparse
import contextlib
import random

from bench.home import Home
from bench.report import Bar, Result, table

# Four ranks do some collectives; one (BAD) does something else at one of them.
SCRIPT = """\
import sys, time
import torch, torch.distributed as dist
kind, bad, step, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
halves = [dist.new_group(range(world), group_desc=name) for name in ("tensor", "data")]
tensor = torch.ones(size)
def common(group=None): dist.all_reduce(tensor, group=group)
def outside(): time.sleep(600)
for number in range(step): common()
if kind == "healthy":
    end = time.monotonic() + 8 + size % 3
    while True:
        over = torch.tensor([time.monotonic() > end], dtype=torch.int)
        common(halves[step % 2]); dist.broadcast(over, bad); time.sleep(0.05 * step * (rank == bad))
        if over.item(): sys.exit()
if kind == "outside": outside()
if rank != bad: common(halves[0] if kind == "groups" else None)
elif kind == "not_called": outside()
elif kind == "operation": dist.barrier()
elif kind == "order": dist.broadcast(tensor, 0); common()
elif kind == "shape": dist.all_reduce(torch.ones(size + 1 + step))
elif kind == "type": dist.all_reduce(torch.ones(size, dtype=torch.double))
elif kind == "groups": common(halves[1])
elif kind == "gone": import os; os._exit(0)
if kind == "order": dist.broadcast(tensor, 0)
outside()
"""
DISAGREE = ("operation", "shape", "type", "groups", "gone")
KINDS = ("not_called", "operation", "order", "shape", "type", "groups", "gone", "outside")


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--planted", type=int, default=60, metavar="N", help="jobs with a desync (60)")
    add("--well", type=int, default=200, metavar="N", help="healthy jobs beside them (200)")


def run(given: argparse.Namespace) -> Result:
    wrong: list[str] = []
    right = dict.fromkeys(KINDS, 0)
    planted = [KINDS[index % len(KINDS)] for index in range(given.planted)]
    with Home() as home:
        (home.work / "train.py").write_text(SCRIPT)
        for number, kind in enumerate(planted):
            verdict = _planted(home, kind, number)
            right[kind] += verdict == "right"
            if verdict != "right":
                print(f"{kind} {number}: {verdict}", flush=True)
        blamed = sum(_is_blamed(home, number) for number in range(given.well))
    rows = [(kind, str(planted.count(kind)), str(right[kind])) for kind in KINDS]
    return Result(
        name="desync",
        text=table(("planted", "jobs", "right"), rows),
        data={"right": right, "healthy": given.well, "blamed": blamed},
        bars=[
            Bar(what="desyncs told right", found=sum(right.values()), least=given.planted),
            Bar(what="healthy jobs that are blamed", found=blamed, most=0),
        ],
        wrong=wrong + home.left,
    )


def _words(kind: str, number: int) -> list[str]:
    chance = random.Random(number)
    bad, step, size = chance.randrange(4), chance.randrange(1, 30), chance.choice([1, 8, 5000])
    words = ["-d", "pytorch", "-p", "4", "--env", "OMP_NUM_THREADS=1", "--warm", "torch"]
    words += ["--name", f"{kind}-{number}".replace("_", "-"), "--hang-timeout", "4"]
    return [*words, "--", "python", "train.py", kind, str(bad), str(step), str(size)]


def _planted(home: Home, kind: str, number: int) -> str:
    """`right`, or what was said instead."""
    words = _words(kind, number)
    with contextlib.suppress(RuntimeError):  # it hangs, which is what is looked at
        home.allranks("run", "-q", *words)
    try:
        told = home.told("job", "stacks", words[words.index("--name") + 1], "--json")
    except RuntimeError:
        return _failed(home, kind, words, number)
    finding = told["collectives"] or {"kind": None, "ranks": None, "message": ""}
    expected = "operation" if kind == "order" else kind
    # In two groups the ranks wait for one another: both sides are right.
    who = kind in ("outside", "groups") or finding["ranks"] == [random.Random(number).randrange(4)]
    right = finding["kind"] == expected and who
    return "right" if right else f"{finding['kind']}: {finding['message']}"


def _failed(home: Home, kind: str, words: list[str], number: int) -> str:
    """The same of a desync that gloo has noticed itself: it is in the message of the failure."""
    message = home.told("job", "show", words[words.index("--name") + 1], "--json")["error"][
        "message"
    ]
    bad = random.Random(number).randrange(4)
    expected = f"; rank {bad} {'has ended' if kind == 'gone' else 'called all_reduce'}"
    # gloo aborts a rank that gets more data than it expects, and its log has the sizes.
    aborted = kind in ("shape", "type") and "shapes, types or operations differ" in message
    right = aborted or (expected in message and ("Double" in message) == (kind == "type"))
    return "right" if right else str(message)


def _is_blamed(home: Home, number: int) -> bool:
    """Whether a healthy job is ended as hung, or said to disagree on a collective."""
    words = _words("healthy", number)
    name = words[words.index("--name") + 1]
    home.allranks("run", "-q", "--detach", *words)
    blamed = False
    while True:
        job = home.told("job", "show", name, "--json")
        if job["ended_at"] is not None:
            break
        with contextlib.suppress(RuntimeError):  # it has not begun, or has just ended
            finding = home.told("job", "stacks", name, "--json")["collectives"]
            blamed |= finding is not None and finding["kind"] in DISAGREE
    if blamed or job["status"] != "Completed":
        print(f"healthy {number}: {job['error']}", flush=True)
    return blamed or job["status"] != "Completed"
