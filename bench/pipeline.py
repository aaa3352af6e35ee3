"""A pipeline of trivial steps beside make, and the same submitted again without a change."""

from __future__ import annotations

import argparse
import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from bench.home import Home
from bench.report import Bar, Result, table
from bench.stats import spread

# Each step but those of the first row reads the output of the one above it.
WIDE = 10


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of a pipeline (100)")
    parser.add_argument("--pipelines", type=int, default=5, metavar="N", help="of each (5)")


def run(given: argparse.Namespace) -> Result:
    samples: dict[str, list[float]] = {}
    order = random.Random(1)
    with Home() as home:
        file = home.work / "pipeline.yml"
        file.write_text(_pipeline(given.steps))
        (home.work / "Makefile").write_text(_makefile(given.steps))
        home.allranks("server", "start")
        create = ("job", "create", "-f", str(file), "--stream", "-q")
        ways: dict[str, Callable[[], None]] = {
            "allranks, all steps run": lambda: _run(home, *create, "--force-rerun"),
            "allranks, all steps reused": lambda: _run(home, *create),
            f"make -j {WIDE}": lambda: _make(home.work),
        }
        _run(home, *create)
        for number in range(given.pipelines + 1):
            for name in order.sample(sorted(ways), len(ways)):
                began = time.monotonic()
                ways[name]()
                if number:  # the first round reads everything from the disk
                    samples.setdefault(name, []).append(time.monotonic() - began)
    found = {name: spread(values) for name, values in samples.items()}
    rows = [
        (name, *(f"{each[key]:.2f}" for key in ("median", "min", "max")))
        for name, each in found.items()
    ]
    head = f"{given.steps} steps, {WIDE} wide, {given.pipelines} pipelines, seconds"
    return Result(
        name="pipeline",
        text=table((head, "median", "min", "max"), rows),
        data={"samples": samples},
        bars=list(_bars(found, given.steps)),
        wrong=home.left,
    )


def _bars(found: dict[str, dict[str, float]], steps: int) -> Iterator[Bar]:
    each = found["allranks, all steps run"]["median"] / steps
    again = found["allranks, all steps reused"]["median"]
    yield Bar(what="seconds a step", found=each, most=0.2)
    yield Bar(what="seconds for all steps reused", found=again, most=1.0)


def _run(home: Home, *words: str) -> None:
    done = home.allranks(*words)
    assert done.returncode == 0, done.stderr


def _make(work: Path) -> None:
    subprocess.run(["make", "-s", "clean"], cwd=work, check=True)
    subprocess.run(["make", "-s", "-j", str(WIDE), "all"], cwd=work, check=True)


def _pipeline(steps: int) -> str:
    lines = ["type: pipeline", "jobs:"]
    for number in range(steps):
        read = number >= WIDE
        cat = "cat ${{inputs.i}}/x; " if read else ""
        lines += [
            f"  s{number}:",
            f"    command: {cat}echo {number} > ${{{{outputs.o}}}}/x",
            "    outputs: {o: }",
        ]
        if read:
            bound = f"${{{{parent.jobs.s{number - WIDE}.outputs.o}}}}"
            lines.append(f"    inputs: {{i: '{bound}'}}")
    return "\n".join(lines) + "\n"


def _makefile(steps: int) -> str:
    lines = [f"all: {' '.join(f'o{number}' for number in range(steps))}", "clean:", "\trm -f o*"]
    for number in range(steps):
        above = f"o{number - WIDE}" if number >= WIDE else ""
        cat = f"cat {above} > /dev/null; " if above else ""
        lines += [f"o{number}: {above}", f"\t{cat}echo {number} > $@"]
    return "\n".join(lines) + "\n"
