"""How much of the machine allranks itself takes: start-up, memory, and what it imports."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from bench import procs
from bench.home import Home
from bench.report import Bar, Result, spreads

HEAVY = ("torch", "ray", "mlflow", "tensorflow", "numpy")
HELP = "allranks --help"
_TIMES = 15

# A package that is not there cannot be imported by mistake: these stand in for the real ones, first
# on the path, and write down who imported them.
_CANARY = (
    "import sys\nwith open({found!r}, 'a') as file:\n    print({name!r}, *sys.argv, file=file)\n"
)

# The engine starts agents in a clean environment, without the path of the canaries: for the agent
# every module it has is imported here.
_AGENT = """\
import importlib, pkgutil, allranks.agent
for module in pkgutil.walk_packages(allranks.agent.__path__, "allranks.agent."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
"""


def options(parser: argparse.ArgumentParser) -> None:
    what = "seconds that the idle server is watched (30)"
    parser.add_argument("--idle", type=float, default=30.0, metavar="S", help=what)


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        imported = _imported(home)
        times = _times(home)
        memory, share = _memory(home, given.idle)
    milliseconds = {name: [each * 1e3 for each in values] for name, values in times.items()}
    text = spreads(f"{_TIMES} starts, ms", milliseconds, 0)
    for name, megabytes in memory.items():
        text += f"\n{name}, resident: {megabytes:.1f} MB"
    text += f"\nserver, idle for {given.idle:g} s: {share:.3%} of a core"
    text += f"\nof {', '.join(HEAVY)} imported: {', '.join(imported) or 'none'}"
    return Result(
        name="weight",
        text=text,
        samples={
            "ms": milliseconds,
            "MB": {name: [megabytes] for name, megabytes in memory.items()},
            "cores": {"server, idle": [share]},
        },
        data={"imported": imported},
        bars=[
            Bar(what="allranks --help, ms", found=median(milliseconds[HELP]), most=50),
            Bar(what="server idle, MB", found=memory["server, idle"], most=60),
            Bar(what="server idle, % of a core", found=100 * share, most=0.2),
            Bar(what="agent, MB", found=memory["agent"], most=40),
        ],
        wrong=[*(f"the launch path imports {each}" for each in imported), *home.left],
    )


def _times(home: Home) -> Mapping[str, list[float]]:
    starts = {
        "python -c pass": [sys.executable, "-c", "pass"],
        HELP: home.argv("--help"),
    }
    found: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(_TIMES):
        for name, argv in starts.items():
            found[name].append(procs.timed(partial(procs.run, argv, cwd=home.work, env=home.env)))
    return found


def _memory(home: Home, idle: float) -> tuple[dict[str, float], float]:
    """MB of a server that never had a job, of the agent of a job that sleeps, and of the server
    after that job; and the part of a core that the server takes while nothing happens."""
    home.allranks("server", "stop")
    home.allranks("server", "start")
    time.sleep(1.0)
    pid = home.told("server", "status", "--json")["pid"]
    found = {"server, idle": procs.resident_mb(pid)}
    name = home.told("run", "--detach", "--json", "--", "sleep", "60")["name"]
    for what, process in _running_agents(home).items():
        found[what] = procs.resident_mb(process)
    home.allranks("job", "cancel", name)
    home.allranks("server", "start")
    while home.told("job", "show", name, "--json")["ended_at"] is None:
        time.sleep(0.1)
    found["server, idle after a job"] = procs.resident_mb(pid)
    time.sleep(2.0)
    before, began = procs.running_seconds(pid), time.monotonic()
    time.sleep(idle)
    return found, (procs.running_seconds(pid) - before) / (time.monotonic() - began)


def _running_agents(home: Home) -> dict[str, int]:
    """The agent, parent of the rank that sleeps; its keeper above it; and above that the fork
    server, which the engine keeps to fork agents from."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for pid in procs.naming(str(home.folder)):
            agent = procs.parent(pid)
            sleeps = procs.command_line(pid).endswith("sleep 60")
            if sleeps and "allranks.agent" in procs.command_line(agent):
                time.sleep(1.0)
                keeper = procs.parent(agent)
                return {"agent": agent, "its keeper": keeper, "fork server": procs.parent(keeper)}
        time.sleep(0.05)
    raise RuntimeError("no agent with a running rank was found within 30 s")


def _imported(home: Home) -> list[str]:
    """Which heavy packages command line, server or agent reached for in a job from start to end."""
    canaries, found = home.work / "canaries", home.work / "imported"
    for name in HEAVY:
        (canaries / name).mkdir(parents=True)
        text = _CANARY.format(found=str(found), name=name)
        (canaries / name / "__init__.py").write_text(text)
    env: dict[str, Any] = home.env | {"PYTHONPATH": str(canaries)}
    home.allranks("server", "stop")
    for argv in (
        home.argv("run", "-p", "3", "--", "true"),
        [sys.executable, "-P", "-c", _AGENT],
    ):
        procs.run(argv, cwd=Path("/") if "-P" in argv else home.work, env=env)
    home.allranks("server", "stop")
    text = found.read_text() if found.exists() else ""
    # Proof that a canary would have sung.
    procs.run([sys.executable, "-c", "import torch"], cwd=home.work, env=env)
    if not found.exists() or found.read_text() == text:
        raise RuntimeError("the canaries are not on the path: nothing can be said of the imports")
    return sorted(set(text.splitlines()))
