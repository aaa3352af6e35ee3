"""Profiles: does the verdict on a slow job name what was planted in it?"""

from __future__ import annotations

import argparse
import contextlib
import random
import time

from bench.home import Home
from bench.report import Bar, Result, spreads, table

SCRIPT = """\
import os, sys, threading, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
kind, seed = sys.argv[1], int(sys.argv[2])
slow = 0.04 + 0.02 * (seed % 4)
dist.init_process_group("gloo")
rank = dist.get_rank()
bad = seed % dist.get_world_size()
def burn(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end: torch.randn(64, 64) @ torch.randn(64, 64)
class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if kind == "forward": burn(slow)
        return x.clone()
    @staticmethod
    def backward(ctx, gradient):
        if kind == "backward": burn(slow)
        return gradient.clone()
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        width = 1500 if kind == "network" else 32
        linear = torch.nn.Linear
        self.layers = torch.nn.Sequential(linear(32, width), linear(width, width), linear(width, 8))
    def forward(self, x):  # a gradient of the input itself would not be computed
        return self.layers[2](self.layers[1](Slow.apply(self.layers[0](x))))
class Step(torch.optim.SGD):
    def step(self, closure=None):
        if kind == "optimizer": burn(slow)
        return super().step(closure)
class Data(torch.utils.data.Dataset):
    def __len__(self): return 1 << 20
    def __getitem__(self, index):
        if kind == "input" or (kind == "slow_rank" and rank == bad):
            time.sleep(slow / 4) if seed % 2 else burn(slow / 4)
        return torch.randn(32)
def save_checkpoint(model, path):
    torch.save({"model": model.state_dict(), "more": torch.randn(500_000 * (1 + seed % 3))}, path)
    os.sync() if seed % 2 else None
def count():
    total = 0
    while True: total += 1
model = DistributedDataParallel(Net())
optimizer = Step(model.parameters(), lr=1e-4)
if kind == "gil":
    for _ in range(2 + seed % 2): threading.Thread(target=count, daemon=True).start()
for number, batch in enumerate(torch.utils.data.DataLoader(Data(), batch_size=4)):
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if kind == "checkpoint" and number % 3 == 0 and (rank == 0 or seed % 2):
        save_checkpoint(model, "model-%d.pt" % rank)
    if number == 3 and rank == 0: print("runs", flush=True)
"""
KINDS = (
    "input", "forward", "backward", "optimizer", "checkpoint", "gil", "slow_rank", "network",
)  # fmt: skip


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--slow-jobs", type=int, default=40, metavar="N", help="planted slow jobs (40)")
    add("--slow-seed", type=int, default=0, metavar="N", help="the number of the first job (0)")


def run(given: argparse.Namespace) -> Result:
    right = dict.fromkeys(KINDS, 0)
    unknown: dict[str, int] = dict.fromkeys(KINDS, 0)
    wrong: list[str] = []
    late: list[float] = []
    planted = [KINDS[index % len(KINDS)] for index in range(given.slow_jobs)]
    with Home() as home:
        (home.work / "train.py").write_text(SCRIPT)
        for number, kind in enumerate(planted, given.slow_seed):
            told, message, seconds = _profiled(home, kind, number)
            right[kind] += told == kind
            unknown[kind] += told == "unknown"
            late.append(seconds)
            if told != kind:
                print(f"{kind} {number}: {told}: {message}", flush=True)
            if told not in (kind, "unknown"):
                wrong.append(f"{kind} {number} is told as {told}: {message}")
    rows = [(k, str(planted.count(k)), str(right[k]), str(unknown[k])) for k in KINDS]
    text = table(("planted", "jobs", "right", "unknown"), rows)
    text += "\n\n" + spreads("from the end of the window to the verdict, seconds", {"late": late})
    return Result(
        name="profile",
        text=text,
        samples={"s": {"late": late}},
        data={"right": right, "unknown": unknown},
        bars=[
            Bar(what="slow jobs told right", found=sum(right.values()), least=0.95 * len(planted)),
            Bar(what="told wrong", found=len(wrong), most=0),
            Bar(what="verdict after the window, seconds", found=max(late), most=5.0),
        ],
        wrong=home.left,
    )


def _profiled(home: Home, kind: str, number: int) -> tuple[str, str, float]:
    """What was told of a job, and how late."""
    ranks = random.Random(number).choice((2, 3))
    name = f"{kind}-{number}".replace("_", "-")
    words = ["-d", "pytorch", "-p", str(ranks), "--env", "OMP_NUM_THREADS=1", "--warm", "torch"]
    words += ["--name", name, "--", "python", "train.py", kind, str(number)]
    home.allranks("run", "-q", "--detach", *words)
    until = time.monotonic() + 120
    while "runs" not in home.allranks("job", "logs", name).stdout and time.monotonic() < until:
        time.sleep(0.5)
    begin = time.monotonic()
    try:
        answer = home.told("job", "profile", name, "--json")
    except RuntimeError as error:  # it has failed: on a crowded machine gloo gives up connecting
        return "unknown", f"{error} {home.told('job', 'show', name, '--json')['error']}", 0.0
    late = time.monotonic() - begin - 5.0
    with contextlib.suppress(RuntimeError):  # it has ended, as it should
        home.allranks("job", "cancel", name)
        home.allranks("job", "wait", name)
    verdict = answer["verdict"]
    told = verdict["kind"]
    # A checkpoint of rank 0 alone makes it the slow one.
    if kind == "checkpoint" and verdict["phase"] == "checkpoint":
        told = kind
    return told, verdict["message"], late
