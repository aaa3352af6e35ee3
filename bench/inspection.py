"""What it costs a rank that it can be asked: CPU at its start, at rest, and in each collective.

CPU time, not the wall's: it hardly depends on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import allranks
from bench.report import Bar, Result, spreads

INSIDE = Path(allranks.__file__).parent / "agent" / "inside"
GROUP = """\
import os, sys, time
import torch, torch.distributed as dist
dist.init_process_group("gloo", rank=0, world_size=1, store=dist.HashStore())
tensor = torch.ones(8)
"""
# CPU microseconds of a collective; and CPU milliseconds in two seconds of rest.
COLLECTIVES = """
for _ in range(2000): dist.all_reduce(tensor)
begin = time.process_time()
for _ in range(20000): dist.all_reduce(tensor)
print((time.process_time() - begin) / 20000 * 1e6)
dist.destroy_process_group()
"""
REST = """
time.sleep(0.5)
begin = time.process_time()
time.sleep(2)
print((time.process_time() - begin) * 1e3)
dist.destroy_process_group()
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--inspection-rounds", type=int, default=7, metavar="N", help="rounds of each (7)")


def run(given: argparse.Namespace) -> Result:
    rounds = given.inspection_rounds
    on = {"PYTHONPATH": str(INSIDE)}
    off: dict[str, str] = {}
    recorded, silent = {**on, "TORCH_FR_BUFFER_SIZE": "2000"}, {"TORCH_FR_BUFFER_SIZE": "0"}
    starts: dict[str, list[float]] = {"python, as in a job": [], "python": []}
    imports: dict[str, list[float]] = {"import torch, as in a job": [], "import torch": []}
    calls: dict[str, list[float]] = {"recorded": [], "not recorded": []}
    rest: dict[str, list[float]] = {"in a group, as in a job": [], "in a group": []}
    for _ in range(rounds):
        for times, code, several in (
            (starts, "pass", 10),
            (imports, "import torch.distributed", 1),
        ):
            for name, env in zip(times, (on, off), strict=True):
                times[name].append(1e3 * _cpu(code, env, several))
        for name, env in zip(calls, (recorded, silent), strict=True):
            calls[name].append(_printed(GROUP + COLLECTIVES, env))
        for name, env in zip(rest, (on, silent), strict=True):
            rest[name].append(_printed(GROUP + REST, env))
    text = spreads("CPU milliseconds of a start", {**starts, **imports})
    text += "\n\n" + spreads("CPU microseconds of an all_reduce of one gloo rank", calls)
    text += "\n\n" + spreads("CPU milliseconds of two seconds at rest", rest)
    start, bare = (min(several) for several in starts.values())
    call, plain = (min(several) for several in calls.values())
    asleep, without = (min(several) for several in rest.values())
    return Result(
        name="inspection",
        text=text,
        samples={"ms": {**starts, **imports, **rest}, "us": calls},
        bars=[
            Bar(what="CPU of a start, beyond a bare one's, ms", found=start - bare, most=5.0),
            Bar(what="CPU of a recorded collective, beyond, us", found=call - plain, most=20.0),
            Bar(what="CPU of a second at rest, beyond, ms", found=(asleep - without) / 2, most=0.1),
        ],
    )


def _environment(more: dict[str, str]) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1", **more}


def _cpu(code: str, env: dict[str, str], several: int) -> float:
    """CPU seconds of one of several starts."""
    before = os.times()
    for _ in range(several):
        subprocess.run([sys.executable, "-c", code], env=_environment(env), check=True)
    after = os.times()
    used = after.children_user - before.children_user
    return (used + after.children_system - before.children_system) / several


def _printed(code: str, env: dict[str, str]) -> float:
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, env=_environment(env), check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])
