"""Metrics and the monitor: what they cost a job, the server and a node, and whether any is lost."""

from __future__ import annotations

import argparse
import json
import time
from statistics import median
from typing import Any

from bench import procs
from bench.home import Home
from bench.report import Bar, Result, spreads
from bench.rounds import Contender, alternate
from bench.stats import interval, paired

WITH, WITHOUT = "with metrics", "without"
# A script that works between its lines, as training does: what reading them takes is taken from it.
SCRIPT = """\
import sys, time
points, until = int(sys.argv[1]), float(sys.argv[2])
began, value = time.monotonic(), 0.0
for n in range(points):
    print(f"step {n} loss {1 / (n + 1):.6f} lr 0.001")
    while time.monotonic() - began < until * n / points:
        time.sleep(0.001)
"""
TALKER = """\
import sys, time
began = time.monotonic()
for n in range(int(sys.argv[1])):
    time.sleep(max(0.0, began + n / 20 - time.monotonic()))
    print("loss", n, flush=True)
"""
PATTERN = r"loss=step (?P<step>\d+) loss (?P<value>\S+)"


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--points", type=int, default=100_000, metavar="N", help="points of one job (100000)")
    add(
        "--spent", type=float, default=20.0, metavar="S", help="seconds that it prints them in (20)"
    )
    add("--both", type=int, default=5, metavar="N", help="rounds of jobs with and without (5)")
    add("--talkers", type=int, default=100, metavar="N", help="ranks that print 20 a second (100)")
    add("--talked", type=int, default=600, metavar="N", help="points of each of them (600)")
    add("--watched", type=float, default=60.0, metavar="S", help="seconds of the monitor (60)")
    add("--million", type=int, default=1_000_000, metavar="N", help="lines to read (1000000)")


def run(given: argparse.Namespace) -> Result:
    wrong: list[str] = []
    with Home() as home:
        (home.work / "train.py").write_text(SCRIPT)
        (home.work / "talk.py").write_text(TALKER)
        home.allranks("run", "-q", "--", "true")
        jobs = _jobs(home, given, wrong)
        talk = _talkers(home, given, wrong)
        watch = _watched(home, given)
    lines = _lines(given)
    slower = paired(jobs[WITH], jobs[WITHOUT])
    low, high = interval(slower)
    text = spreads(f"a job of {given.points} points, {given.both} rounds, seconds", jobs)
    text += (
        f"\nround by round: {median(slower):.3f} × (95 %: {low:.3f} to {high:.3f})"
        f"\n{given.talkers} ranks of 20 points a second: {talk['kept']} of {talk['printed']} kept, "
        f"server {talk['server']:.2f} of a core"
        f"\nthe whole agent while its rank sleeps, looked at each second: {watch:.2%} of a core"
        f"\n{given.million} lines, three patterns: {lines:.1f} s of a core"
    )
    return Result(
        name="metrics",
        text=text,
        samples={
            "s": jobs,
            "cores": {"the server, of many ranks' points": [talk["server"]], "an agent": [watch]},
            "s of a core": {f"{given.million} lines, three patterns": [lines]},
        },
        data={"points": given.points, "talk": talk},
        bars=[
            Bar(what="a job with 100,000 points, × one without", found=median(slower), most=1.05),
            Bar(what="the server, of a core", found=talk["server"], most=1.0),
            Bar(what="the agent, of a core", found=watch, most=0.01),
        ],
        wrong=wrong + home.left,
    )


def _jobs(home: Home, given: argparse.Namespace, wrong: list[str]) -> dict[str, list[float]]:
    words = ("--", "python", "train.py", str(given.points), str(given.spent))

    names: list[str] = []

    def once(*more: str) -> None:
        told = json.loads(home.allranks("run", "--json", *more, *words).stdout)
        if more:
            names.append(told["name"])

    contenders = [
        Contender(name=WITH, once=lambda: once("-m", PATTERN)),
        Contender(name=WITHOUT, once=once),
    ]
    samples = alternate(contenders, given.both)[0]
    for name in names:
        kept = home.told("job", "metrics", name, "--json")["loss"]
        if [point["step"] for point in kept] != list(range(given.points)):
            wrong.append(f"{name} has {len(kept)} points, or not in order")
    return samples


def _talkers(home: Home, given: argparse.Namespace, wrong: list[str]) -> dict[str, Any]:
    """The server's time on a processor while many ranks tell, of the time that passes."""
    words = ("-m", r"loss=loss (\d+)", "--metric-rank", "all", "--", "python", "talk.py")
    ranks = ("-p", str(given.talkers), "-d", "none")
    job = home.told("run", "--detach", "--json", *ranks, *words, str(given.talked))["name"]
    # Starting so many ranks takes longer than a short talk.
    while not home.told("job", "metrics", job, "--json"):
        time.sleep(0.2)
    server = json.loads((home.folder / "server.json").read_text())["pid"]
    before, began = procs.cpu_seconds(server), time.monotonic()
    time.sleep(given.talked / 20 * 0.8)
    share = (procs.cpu_seconds(server) - before) / (time.monotonic() - began)
    home.allranks("job", "wait", job)
    found = home.told("job", "metrics", job, "--json")
    kept = sum(len(points) for points in found.values())
    printed = given.talkers * given.talked
    whole = list(range(given.talked))
    if any([point["value"] for point in points] != whole for points in found.values()):
        wrong.append("points of a rank are lost, doubled or out of order")
    if kept != printed:
        wrong.append(f"{kept} points are kept of {printed}")
    return {"server": share, "kept": kept, "printed": printed}


def _watched(home: Home, given: argparse.Namespace) -> float:
    """The agent's time on a processor while its rank does nothing, of the time that passes."""
    job = home.told("run", "--detach", "--json", "--", "sleep", "600")["name"]
    while home.told("job", "show", job, "--json")["status"] != "Running":
        time.sleep(0.2)
    rank = next(p for p in procs.naming(f"{job}.1") if "sleep" in procs.command_line(p))
    agent = procs.parent(rank)
    time.sleep(2)
    before, began = procs.cpu_seconds(agent), time.monotonic()
    time.sleep(given.watched)
    share = (procs.cpu_seconds(agent) - before) / (time.monotonic() - began)
    home.allranks("job", "cancel", job)
    return share


def _lines(given: argparse.Namespace) -> float:
    """Seconds of a core to read a million lines for three metrics."""
    from allranks.core.metrics.printed_metrics import Reader, lines
    from allranks.core.plan import MetricTask

    text = "".join(f"step {n} loss {1 / (n + 1):.6f} lr 0.001\n" for n in range(given.million))
    patterns = (r"loss (\S+)", r"lr (\S+)", r"accuracy (\S+)")
    readers = [Reader(MetricTask(str(n), each)) for n, each in enumerate(patterns)]
    began = time.process_time()
    found = sum(1 for line in lines(text) for reader in readers for _ in reader.find(line))
    assert found == 2 * given.million
    return time.process_time() - began
