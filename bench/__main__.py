"""``python -m bench NAME``: one benchmark, or all; a table on stdout, JSON in bench/results."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from bench import (
    agents,
    burst,
    clusters,
    data,
    distributions,
    early_stop,
    environments,
    hang,
    launch,
    lease,
    lines,
    metrics,
    page,
    page_peers,
    page_questions,
    pipeline,
    restart,
    snapshot,
    sweep,
    train,
    unpack,
    weight,
)
from bench.report import Result


class Bench(NamedTuple):
    options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Result]
    what: str


BENCHES = {
    "launch": Bench(launch.options, launch.run, "three trivial ranks, end to end, beside peers"),
    "distributions": Bench(
        distributions.options, distributions.run, "each distribution beside its own launcher"
    ),
    "clusters": Bench(
        clusters.options, clusters.run, "jobs of three nodes beside the cluster's own way"
    ),
    "environments": Bench(
        environments.options, environments.run, "an environment that is there, and making one"
    ),
    "data": Bench(data.options, data.run, "data from an S3, beside the AWS CLI"),
    "snapshot": Bench(snapshot.options, snapshot.run, "submitting code that did not change"),
    "burst": Bench(burst.options, burst.run, "many one-rank jobs at once; is any output lost?"),
    "agents": Bench(agents.options, agents.run, "a thousand simulated agents and one server"),
    "lines": Bench(lines.options, lines.run, "long output while the server is killed"),
    "lease": Bench(lease.options, lease.run, "a silent node is noticed, a busy one is not missed"),
    "hang": Bench(hang.options, hang.run, "slow jobs are left alone, hung ones are noticed"),
    "metrics": Bench(metrics.options, metrics.run, "what metrics and the monitor cost"),
    "restart": Bench(restart.options, restart.run, "a rank crashes: until all train again"),
    "train": Bench(train.options, train.run, "training throughput against ranks started by hand"),
    "pipeline": Bench(pipeline.options, pipeline.run, "trivial steps, beside make"),
    "early_stop": Bench(early_stop.options, early_stop.run, "what stopping bad trials early saves"),
    "page": Bench(page.options, page.run, "the web page in a browser"),
    "page_peers": Bench(page_peers.options, page_peers.run, "the web page beside NiceGUI and Dash"),
    "page_questions": Bench(
        page_questions.options, page_questions.run, "clicks to an answer: our page, MLflow, Ray"
    ),
    "sweep": Bench(sweep.options, sweep.run, "trivial trials, beside Optuna and Ray Tune"),
    "unpack": Bench(unpack.options, unpack.run, "a thousand shards, beside the system's tar"),
    "weight": Bench(weight.options, weight.run, "start-up time, memory, imports"),
}


def main() -> int:
    given = _parser().parse_args()
    # Ended from outside, it still takes its homes down, and what runs in them.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    names = list(BENCHES) if given.bench == "all" else [given.bench]
    wrong = False
    for name in names:
        print(f"== {name}", flush=True)
        try:
            result = BENCHES[name].run(given)
        except RuntimeError as error:
            print(f"WRONG: {error}", flush=True)
            wrong = True
            continue
        print(result.show())
        print(f"raw samples: {result.write(given.json)}\n", flush=True)
        wrong = wrong or bool(result.wrong)
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="What allranks claims, measured beside its peers in the same run.",
        epilog="Exit 1 when something went wrong: lost output, a process left. "
        "A missed bar is told, no more.",
    )
    doors = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    for name, bench in BENCHES.items():
        door = doors.add_parser(name, help=bench.what)
        bench.options(door)
        door.add_argument("--json", type=Path, metavar="FILE", help="where the raw samples go")
        _torch_options(door)
    door = doors.add_parser("all", help="one after the other")
    for bench in BENCHES.values():
        bench.options(door)
    door.set_defaults(json=None)
    _torch_options(door)
    return parser


def _torch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--torch-python", metavar="PATH", help="a Python that has torch (the current one)"
    )
    parser.add_argument("--no-torch", action="store_true", help="leave out what needs torch")


if __name__ == "__main__":
    sys.exit(main())
