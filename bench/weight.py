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
from bench.report import Bar, Result, table
from bench.stats import spread

HEAVY = ("torch", "ray", "mlflow", "tensorflow", "numpy")
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
    del parser  # it has none


def run(given: argparse.Namespace) -> Result:
    with Home() as home:
        imported = _imported(home)
        times = _times(home)
        memory = _memory(home)
    help_ms = median(times["allranks --help"]) * 1e3
    rows = [
        (name, *(f"{spread(values)[key] * 1e3:.0f} ms" for key in ("median", "min", "max")))
        for name, values in times.items()
    ]
    rows += [
        (f"{name}, resident", f"{megabytes:.1f} MB", "", "") for name, megabytes in memory.items()
    ]
    rows.append((f"of {', '.join(HEAVY)} imported", ", ".join(imported) or "none", "", ""))
    return Result(
        name="weight",
        text=table((f"{_TIMES} starts", "median", "min", "max"), rows),
        data={"samples_s": times, "resident_mb": memory, "imported": imported},
        bars=[
            Bar(what="allranks --help, ms", found=help_ms, most=150),
            Bar(what="server idle, MB", found=memory["server, idle"], most=150),
            Bar(what="agent, MB", found=memory["agent"], most=40),
        ],
        wrong=[*(f"the launch path imports {each}" for each in imported), *home.left],
    )


def _times(home: Home) -> Mapping[str, list[float]]:
    starts = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "allranks --help": home.argv("--help"),
    }
    found: dict[str, list[float]] = {name: [] for name in starts}
    for _ in range(_TIMES):
        for name, argv in starts.items():
            found[name].append(procs.timed(partial(procs.run, argv, cwd=home.work, env=home.env)))
    return found


def _memory(home: Home) -> dict[str, float]:
    """MB of a server that never had a job, of the agent of a job that sleeps, and of the server
    after that job."""
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
    return found


def _running_agents(home: Home) -> dict[str, int]:
    """The agent, parent of the rank that sleeps; its keeper above it; and above that the nursery,
    which the engine keeps to fork agents from."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        for pid in procs.naming(str(home.folder)):
            agent = procs.parent(pid)
            sleeps = procs.command_line(pid).endswith("sleep 60")
            if sleeps and "allranks.agent" in procs.command_line(agent):
                time.sleep(1.0)
                keeper = procs.parent(agent)
                return {"agent": agent, "its keeper": keeper, "nursery": procs.parent(keeper)}
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
