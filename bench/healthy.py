"""Healthy jobs of many kinds: is none blamed, as hung, as in disagreement, or as slow?"""

from __future__ import annotations

import argparse
import contextlib
import random
import time

from bench.desync import DISAGREE
from bench.home import Home
from bench.report import Bar, Result, table

# Ranks do what is usual, for some seconds.
SCRIPT = """\
import os, random, sys, time
kind, seed, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
chance = random.Random(1000 * seed + int(os.environ.get("RANK", 0)))
together = random.Random(seed)
end = time.monotonic() + seconds
if kind == "sleeps":
    time.sleep(seconds); sys.exit()
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
def burn(wanted):
    until = time.thread_time() + wanted
    while time.thread_time() < until: torch.randn(32, 32) @ torch.randn(32, 32)
def goes_on():
    over = torch.tensor([time.monotonic() > end], dtype=torch.int)
    dist.broadcast(over, 0)
    return not over.item()
class Data(torch.utils.data.Dataset):
    def __len__(self): return 64
    def __getitem__(self, index):
        time.sleep(chance.expovariate(500)); return torch.randn(16)
layers = torch.nn.Linear(16, 64), torch.nn.Linear(64, 4)
model = DistributedDataParallel(torch.nn.Sequential(*layers))
halves = [dist.new_group(range(world)) for _ in range(2)]
pairs = [dist.new_group([one, (one + 1) % world]) for one in range(world)] if world > 1 else []
def train(batch): model(batch).sum().backward()
loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2 * (kind == "loader"))
step = 0
while goes_on():
    step += 1
    if kind in ("loader", "data"):
        for batch in loader: train(batch)
    elif kind == "uneven": time.sleep(chance.expovariate(20)); train(torch.randn(4, 16))
    elif kind == "heavy": burn(chance.uniform(0.01, 0.05)); train(torch.randn(4, 16))
    elif kind == "barriers":
        time.sleep(0.02 * together.random()); dist.barrier(group=halves[step % 2])
    elif kind == "subgroups":
        for one, pair in enumerate(pairs):
            if rank in (one, (one + 1) % world): dist.all_reduce(torch.ones(4), group=pair)
        time.sleep(chance.uniform(0.0, 0.02))
    elif kind == "checkpoint":
        burn(0.01); train(torch.randn(4, 16))
        if step % 100 == 50:
            if rank == 0: torch.save(model.state_dict(), "model.pt"); time.sleep(1.5)
            dist.barrier()
    elif kind == "validates":
        burn(0.01); train(torch.randn(4, 16))
        if step == 50 and rank == 0: time.sleep(5)
    elif kind == "turns":
        if step % world == rank: time.sleep(0.05)
        train(torch.randn(4, 16))
    else: burn(0.02); train(torch.randn(4, 16))
if kind == "exits" and rank: time.sleep(4 * chance.random()); os._exit(0)
"""
KINDS = (
    "ddp", "uneven", "heavy", "exits", "barriers", "subgroups", "loader", "data", "checkpoint",
    "validates", "turns", "one", "sleeps",
)  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--healthy-jobs", type=int, default=200, metavar="N", help="healthy jobs (200)")
    add("--healthy-seconds", type=float, default=15.0, metavar="S", help="that each trains (15)")
    add("--healthy-seed", type=int, default=0, metavar="N", help="the number of the first job (0)")
    add(
        "--healthy-pace",
        type=float,
        default=3.0,
        metavar="S",
        help="a third of the time for which"
        " somebody who holds the others is not named yet, 20 in real life (3)",
    )
    add("--healthy-at-once", type=int, default=2, metavar="N", help="jobs at a time (2)")


def run(given: argparse.Namespace) -> Result:
    blamed: list[str] = []
    counts = dict.fromkeys(KINDS, 0)
    with Home() as home:
        (home.work / "train.py").write_text(SCRIPT)
        home.env["ALLRANKS_PACE"] = f"{given.healthy_pace:g}"
        home.allranks("server", "start")
        most = str(4 * given.healthy_at_once)
        home.allranks("compute", "update", "local", "--max-ranks", most)
        waiting = [*range(given.healthy_seed, given.healthy_seed + given.healthy_jobs)][::-1]
        live: dict[str, str] = {}
        while waiting or live:
            while waiting and len(live) < given.healthy_at_once:
                number = waiting.pop()
                kind = KINDS[number % len(KINDS)]
                live[_start(home, kind, number, given.healthy_seconds)] = kind
            for name in [*live]:
                verdict = _verdict(home, name)
                if verdict is not None:
                    counts[live.pop(name)] += 1
                    if verdict:
                        blamed.append(f"{name}: {verdict}")
                        print(blamed[-1], flush=True)
            time.sleep(1.0)
    rows = [(kind, str(counts[kind])) for kind in KINDS]
    return Result(
        name="healthy",
        text=table(("healthy", "jobs"), rows),
        data={"jobs": counts, "blamed": blamed},
        bars=[Bar(what="healthy jobs that are blamed", found=len(blamed), most=0)],
        wrong=home.left,
    )


def _start(home: Home, kind: str, number: int, seconds: float) -> str:
    ranks = 1 if kind == "one" else random.Random(number).choice((2, 3, 4))
    words = ["-d", "pytorch", "-p", str(ranks), "--env", "OMP_NUM_THREADS=1", "--warm", "torch"]
    words += ["--name", f"{kind}-{number}", "--hang-timeout", "20", "--", "python", "train.py"]
    home.allranks("run", "-q", "--detach", *words, kind, str(number), str(seconds))
    return f"{kind}-{number}"


def _verdict(home: Home, name: str) -> str | None:
    """What a job is blamed for, empty if nothing; None while it runs and is not."""
    job = home.told("job", "show", name, "--json")
    if job["slow_ranks"]:
        home.allranks("job", "cancel", name)
        return str(job["slow_ranks"][0]["message"])
    if job["ended_at"] is not None:
        return "" if job["status"] == "Completed" else str(job["error"])
    with contextlib.suppress(RuntimeError):  # it has not begun, or has just ended
        finding = home.told("job", "stacks", name, "--json")["collectives"]
        if finding is not None and finding["kind"] in DISAGREE:
            return str(finding["message"])
    return None
