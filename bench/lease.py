"""A node that falls silent: how soon that is noticed, and whether one is missed that is not."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
from datetime import datetime

from bench.home import Home
from bench.report import Bar, Result, spreads

NODES = 4
# Twice as many as there are processors: they are never free.
BUSY = "import time; end = time.time() + {seconds}\nwhile time.time() < end: pass"
STAYS = "import time; time.sleep(600)"


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes", type=float, default=10.0, metavar="M", help="of full load (10)"
    )
    parser.add_argument("--silences", type=int, default=5, metavar="N", help="nodes to stop (5)")


def run(given: argparse.Namespace) -> Result:
    python = sys.executable
    each = max(1, 2 * len(os.sched_getaffinity(0)) // NODES)
    with Home() as home:
        home.allranks("server", "start")
        size = ("-n", str(NODES), "-p", str(each), "-d", "none")
        busy = BUSY.format(seconds=60 * given.minutes)
        home.allranks("run", "-q", *size, "--detach", "--name", "busy", "--", python, "-c", busy)
        until = time.monotonic() + 60 * given.minutes
        noticed: list[float] = []
        while len(noticed) < given.silences:
            noticed.append(_noticed(home, python, len(noticed)))
        while (job := home.told("job", "show", "busy", "--json"))["ended_at"] is None:
            if time.monotonic() > until + 120:
                raise RuntimeError(f"the busy job does not end: {job['status']}")
            time.sleep(1.0)
        events = home.told("job", "events", "busy", "--json")
    alarms = [event for event in events if event["kind"] == "lost"]
    ran = f"{NODES * each} busy ranks on {len(os.sched_getaffinity(0))} CPUs"
    samples = {"a stopped agent is noticed": noticed}
    text = spreads(f"{ran}, seconds", samples, 1)
    text += f"\nnodes lost by mistake in {given.minutes:g} min: {len(alarms)}"
    wrong = [f"false alarm: {json.dumps(each)}" for each in alarms]
    if job["status"] != "Completed":
        wrong.append(f"the busy job is {job['status']}")
    return Result(
        name="lease",
        text=text,
        samples={"s": samples},
        data={"minutes": given.minutes, "false_alarms": len(alarms)},
        bars=[Bar(what="noticed, seconds at most", found=max(noticed), most=10.0)],
        wrong=[*wrong, *home.left],
    )


def _noticed(home: Home, python: str, number: int) -> float:
    """Seconds from an agent's stop, which its locks and its host outlive, to the word that it is
    lost."""
    name = f"silent-{number}"
    home.allranks(
        *("run", "-q", "-n", "2", "-d", "none", "--detach", "--name", name, "--", python),
        *("-c", STAYS),
    )
    while home.told("job", "show", name, "--json")["status"] != "Running":
        time.sleep(0.2)
    (hello,) = [
        event
        for event in home.told("job", "events", name, "--json")
        if event["kind"] == "hello" and event["node"] == 1
    ]
    # At another moment of its question each time.
    time.sleep(0.7 * number)
    stopped = time.time()
    os.kill(hello["data"]["pid"], signal.SIGSTOP)
    while home.told("job", "show", name, "--json")["ended_at"] is None:
        time.sleep(0.5)
    events = home.told("job", "events", name, "--json")
    (lost,) = [event for event in events if event["kind"] == "lost"]
    return datetime.fromisoformat(lost["at"]).timestamp() - stopped
