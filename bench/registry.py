"""The benchmarks, in the order in which ``all`` runs them. Each is a module of this folder."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from bench.report import Result


class About(NamedTuple):
    """``needs`` are the peers (``bench.peers``) without which it measures nothing, ``beside`` those
    that it goes without; ``quick`` its options for ``--quick``."""

    needs: Sequence[str] = ()
    beside: Sequence[str] = ()
    quick: Mapping[str, Any] = {}


BENCHES = {
    "launch": About(
        beside=("torch", "mpi", "submitit", "torchx", "ray", "slurm"), quick={"rounds": 1}
    ),
    "warm": About(beside=("torch",), quick={"warm_rounds": 1}),
    "burst": About(quick={"jobs": 10, "bursts": 1}),
    "weight": About(quick={"idle": 5.0}),
    "snapshot": About(needs=("git",), quick={"files": 200, "submits": 1}),
    "environments": About(quick={"runs": 1, "makings": 1}),
    "current_elsewhere": About(quick={"elsewhere_runs": 1, "elsewhere_packages": "six"}),
    "pipeline": About(needs=("make",), quick={"steps": 10, "pipelines": 1}),
    "sweep": About(
        needs=("sweep-extra",), beside=("optuna", "ray"), quick={"trials": 4, "sweeps": 1}
    ),
    "early_stop": About(needs=("sweep-extra",), quick={"reports": 12}),
    "distributions": About(beside=("torch", "mpi"), quick={"starts": 1}),
    "restart": About(beside=("torch",), quick={"restarts": 1}),
    "train": About(beside=("torch",), quick={"pairs": 1, "epochs": 2}),
    "lines": About(quick={"lines": 20000, "pause": 0.05}),
    "agents": About(quick={"agents": 40, "gangs": "4,8", "gang_rounds": 1, "agents_watched": 2.0}),
    "records": About(quick={"ended": 500, "waiting": 50}),
    "metrics": About(
        quick={
            "points": 2000,
            "spent": 2.0,
            "both": 1,
            "talkers": 5,
            "talked": 60,
            "watched": 5.0,
            "million": 10000,
        }
    ),
    "hang": About(quick={"healthy": 4, "hung": 1, "hang_timeout": 4.0}),
    "desync": About(needs=("torch",), quick={"planted": 4, "well": 1}),
    "healthy": About(needs=("torch",), quick={"healthy_jobs": 4, "healthy_seconds": 5.0}),
    "profile": About(needs=("torch",), quick={"slow_jobs": 4}),
    "inspection": About(needs=("torch",), quick={"inspection_rounds": 1}),
    "kubernetes_clients": About(),
    "unpack": About(needs=("tar",), quick={"shards": 20, "unpackings": 1}),
    "data": About(
        needs=("aws", "curl"),
        quick={"megabytes": 20, "objects": 100, "large_rounds": 1, "small_rounds": 1, "again": 1},
    ),
    "inputs": About(
        needs=("rsync",), quick={"input_megabytes": 20, "input_nodes": 2, "input_rounds": 1}
    ),
    "import_runs": About(
        beside=("wandb",), quick={"imported_runs": 5, "run_steps": 5, "imports": 1}
    ),
    "state": About(quick={"state_megabytes": 80, "state_files": 200, "state_rounds": 1}),
    "upload": About(
        needs=("rsync",), quick={"upload_megabytes": 20, "upload_files": 200, "upload_rounds": 1}
    ),
    "remote": About(
        needs=("rsync",), quick={"remote_megabytes": 20, "remote_files": 200, "remote_rounds": 1}
    ),
    "page": About(
        needs=("chromium", "playwright"),
        quick={"page_jobs": 200, "page_points": 2000, "page_log": 2000000, "pages": 10},
    ),
    "page_peers": About(needs=("chromium", "playwright"), beside=("pages",)),
    "page_questions": About(needs=("chromium", "playwright", "mlflow-extra"), beside=("ray",)),
    "clusters": About(quick={"cluster_rounds": 1}),
    "serve": About(
        quick={"serve_rounds": 1, "serve_seconds": 1.0, "serve_requests": 3000, "deploys": 1}
    ),
    "lease": About(quick={"minutes": 0.5, "silences": 1}),
}


class Bench(Protocol):
    """What such a module has. Its docstring is its help."""

    __doc__: str | None

    def options(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, given: argparse.Namespace) -> Result: ...


def load(name: str) -> Bench:
    return cast(Bench, importlib.import_module(f"bench.{name}"))
