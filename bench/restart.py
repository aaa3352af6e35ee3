"""A rank crashes: how soon its peers are stopped and all train again, beside torchrun."""

from __future__ import annotations

import argparse
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, nothing, spreads

RANKS = 3
# Trains a little, and rank 1 of the first attempt falls over. Each tells what it did when.
SCRIPT = """
import os, sys, time
began, rank = time.time(), int(os.environ["RANK"])
attempt = os.environ.get("ALLRANKS_ATTEMPT") or int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
log = open(sys.argv[1], "a", buffering=1)
say = lambda what, at: log.write(f"{what} {attempt} {rank} {os.getpid()} {at}\\n")
say("began", began)
import torch, torch.distributed as dist
dist.init_process_group("gloo")
for step in range(40):
    dist.all_reduce(torch.ones(1000))
    if step == 0:
        say("step", time.time())
    if int(attempt) == 1 and step == 20 and rank == 1:
        say("crash", time.time())
        os._exit(3)
    time.sleep(0.02)
"""
_BARS = {"peers stopped": 1.0, "started again": 3.0}


class Restart(NamedTuple):
    """Seconds from the crash until the last peer was gone, until every rank's first line ran again,
    and until every rank had done its first step; ``own`` is the script's time between the two."""

    stopped: float
    started: float
    trains: float
    own: float


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--restarts", type=int, default=7, metavar="N", help="of each (7)")


def run(given: argparse.Namespace) -> Result:
    torch = peers.torch(given)
    if torch is None:
        return nothing("restart", f"all of it (no torch: --torch-python, or {peers.hint('torch')})")
    samples: dict[str, list[Restart]] = {"allranks": [], "torchrun": []}
    with Home() as home:
        script = home.work / "train.py"
        script.write_text(SCRIPT)
        home.allranks("server", "start")
        for number in range(given.restarts + 1):
            ways = {
                "allranks": home.argv(
                    *("run", "-p", str(RANKS), "--max-attempts", "2", "--", torch.python, script)
                ),
                "torchrun": [
                    *torch.torchrun,
                    *("--standalone", f"--nproc-per-node={RANKS}", "--max-restarts=1"),
                    str(script),
                ],
            }
            for name in sorted(ways, reverse=bool(number % 2)):
                found = _once(ways[name], home, home.work / f"{name}-{number}.log")
                if number:  # the first reads torch from the disk
                    samples[name].append(found)
    columns = {
        f"{name}: {what}": values
        for name, found in samples.items()
        for what, values in _columns(found).items()
    }
    ours, theirs = (_columns(samples[name]) for name in ("allranks", "torchrun"))
    bars = [
        Bar(what=f"{what}, seconds", found=median(ours[what]), most=most)
        for what, most in _BARS.items()
    ]
    trains = [median(each["trains again"]) for each in (ours, theirs)]
    bars.append(Bar(what="trains again, allranks / torchrun", found=trains[0] / trains[1], most=1))
    return Result(
        name="restart",
        text=spreads(f"{RANKS} ranks, {given.restarts} crashes of each, seconds", columns),
        samples={"s": columns},
        data={"versions": {"torch": torch.version}},
        bars=bars,
        wrong=home.left,
    )


def _columns(found: list[Restart]) -> dict[str, list[float]]:
    return {
        "peers stopped": [each.stopped for each in found],
        "started again": [each.started for each in found],
        "trains again": [each.trains for each in found],
        "of that, the script's own start": [each.own for each in found],
    }


def _once(argv: list[str], home: Home, log: Path) -> Restart:
    """One run with its crash; RuntimeError unless it trains to its end afterwards."""
    log.touch()
    # torchrun's second attempt would meet the first one's addresses in the store that its ranks
    # share with it, and give up (torch 2.13).
    env = {**home.env, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    said = log.with_suffix(".said")
    with said.open("wb") as output:
        child = subprocess.Popen(
            [*argv, str(log)],
            cwd=home.work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
        )
        try:
            gone = _peers_gone(child, log)
            code = child.wait(procs.LIMIT)
        finally:
            child.kill()
            child.wait()
    if code != 0:
        tail = said.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{argv[0]} exited with {code}: {tail}")
    (crash,) = _told(log, "crash", "1")
    began, steps = _told(log, "began", "2"), _told(log, "step", "2")
    if len(steps) != RANKS:
        raise RuntimeError(f"not every rank trained again: {log.read_text()}")
    own = max(steps) - max(began)
    return Restart(gone - crash, max(began) - crash, max(steps) - crash, own)


def _told(log: Path, what: str, attempt: str) -> list[float]:
    rows = [line.split() for line in log.read_text().splitlines()]
    return [float(row[4]) for row in rows if row[:2] == [what, attempt]]


def _peers_gone(child: subprocess.Popen[bytes], log: Path) -> float:
    """When the last rank of the first attempt was gone."""
    while not _told(log, "crash", "1"):
        if child.poll() is not None:
            raise RuntimeError(f"it ended before the crash: {log.read_text()}")
        time.sleep(0.01)
    rows = [line.split() for line in log.read_text().splitlines()]
    pids = {int(row[3]) for row in rows if row[:2] == ["began", "1"]}
    while any(_runs(pid) for pid in pids):
        time.sleep(0.002)
    return time.time()


def _runs(pid: int) -> bool:
    try:
        return b"\nState:\tZ" not in Path(f"/proc/{pid}/status").read_bytes()
    except OSError:
        return False
