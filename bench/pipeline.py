"""A pipeline of trivial steps beside make, and the same submitted again without a change."""

from __future__ import annotations

import argparse
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, Samples, alternate

# Each step but those of the first row reads the output of the one above it.
WIDE = 10
RUN, REUSED = "allranks, all steps run", "allranks, all steps reused"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=int, default=100, metavar="N", help="of a pipeline (100)")
    parser.add_argument("--pipelines", type=int, default=5, metavar="N", help="of each (5)")


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        file = home.work / "pipeline.yml"
        file.write_text(_pipeline(given.steps))
        (home.work / "Makefile").write_text(_makefile(given.steps))
        home.allranks("server", "start")
        create = partial(home.allranks, "job", "create", "-f", file, "--stream", "-q")
        ways = [
            Contender(name=RUN, once=partial(create, "--force-rerun")),
            Contender(name=REUSED, once=create),
            Contender(name=f"make -j {WIDE}", once=partial(_make, home.work)),
        ]
        create()
        samples, orders = alternate(ways, given.pipelines)
    head = f"{given.steps} steps, {WIDE} wide, {given.pipelines} pipelines, seconds"
    return Result(
        name="pipeline",
        text=spreads(head, samples),
        samples={"s": samples},
        data={"steps": given.steps, "orders": orders},
        bars=list(_bars(samples, given.steps)),
        wrong=home.left,
    )


def _bars(samples: Samples, steps: int) -> Iterator[Bar]:
    yield Bar(what="seconds a step", found=median(samples[RUN]) / steps, most=0.2)
    yield Bar(what="seconds for all steps reused", found=median(samples[REUSED]), most=1.0)


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
