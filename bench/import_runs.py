"""W&B's offline runs taken into the record, beside reading their files with wandb itself."""

from __future__ import annotations

import argparse
import shutil
import time
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median

from bench import peers, procs
from bench.home import Home
from bench.report import Bar, Result, nothing, spreads
from bench.rounds import Contender, alternate
from bench.stats import paired

OURS, ALL, EACH = "allranks import runs", "wandb, one process", "wandb, a process a run"
# The runs that are read by a process each: it stands for all.
_SAMPLE = 10
_WRITE = """import sys, wandb
run = wandb.init(project="p", mode="offline", dir=sys.argv[1], config={"lr": 0.1, "depth": 3})
for step in range(int(sys.argv[2])):
    run.log({f"m{i}": step / (i + 1) for i in range(5)})
run.finish()
"""
_READ = """import json, sys
from wandb.proto.wandb_internal_pb2 import Record
from wandb.sdk.internal.datastore import DataStore
for path in sys.argv[1:]:
    store, points = DataStore(), []
    store.open_for_scan(path)
    while (data := store.scan_data()) is not None:
        for item in Record.FromString(data).history.item:
            points.append((item.key or item.nested_key[0], json.loads(item.value_json)))
"""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--wandb-python", metavar="PATH", help="a Python that has wandb")
    add("--imported-runs", type=int, default=1000, metavar="N", help="runs (1000)")
    add("--run-steps", type=int, default=100, metavar="N", help="steps of 5 metrics in each (100)")
    add("--imports", type=int, default=3, metavar="N", help="rounds (3)")


def run(given: argparse.Namespace) -> Result:
    python = given.wandb_python or peers.program("wandb", "python")
    if not python or not peers.has(python, "wandb"):
        return nothing("import_runs", f"no wandb (--wandb-python, or {peers.hint('wandb')})")
    with Home() as home:
        write = [python, "-c", _WRITE, str(home.work), str(given.run_steps)]
        procs.run(write, cwd=home.work, env=home.env)
        (one,) = home.work.glob("wandb/offline-*/*.wandb")
        home.allranks("server", "start")
        rounds, folder = count(), home.work / "runs"

        def fill() -> None:
            """Runs that are new each time: a run is imported once."""
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            number = next(rounds)
            for each in range(given.imported_runs):
                shutil.copyfile(one, folder / f"run-{number}x{each}.wandb")

        def read(paths: list[Path]) -> None:
            procs.run([python, "-c", _READ, *paths], cwd=home.work, env=home.env)

        def each() -> float:
            some = [*folder.iterdir()][:_SAMPLE]
            began = time.perf_counter()
            for path in some:
                read([path])
            seconds = time.perf_counter() - began
            return seconds * int(given.imported_runs) / len(some)

        contenders = [
            Contender(
                name=OURS, once=partial(home.allranks, "import", "runs", folder), before=fill
            ),
            Contender(name=ALL, once=lambda: read([*folder.iterdir()]), before=fill),
            Contender(name=EACH, once=each, before=fill),
        ]
        samples, orders = alternate(contenders, given.imports)
    beside = {name: median(paired(samples[OURS], samples[name])) for name in (ALL, EACH)}
    title = f"{given.imported_runs} runs of {given.run_steps} steps, seconds"
    return Result(
        name="import_runs",
        text=spreads(title, samples) + f"\nof the time of one process: {beside[ALL]:.2f}",
        samples={"s": samples},
        data={"runs": given.imported_runs, "steps": given.run_steps, "orders": orders},
        bars=[Bar(what="import / wandb, a process a run", found=beside[EACH], most=0.1)],
        wrong=home.left,
    )
