"""The benchmarks, in the order in which ``all`` runs them. Each is a module of this folder."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from bench.report import Result

NAMES = (
    "launch",
    "warm",
    "burst",
    "weight",
    "snapshot",
    "environments",
    "pipeline",
    "sweep",
    "early_stop",
    "distributions",
    "restart",
    "train",
    "lines",
    "agents",
    "metrics",
    "hang",
    "unpack",
    "data",
    "page",
    "page_peers",
    "page_questions",
    "clusters",
    "lease",
)


class Bench(Protocol):
    """What such a module has. Its docstring is its help."""

    __doc__: str | None
    # Peers (``bench.peers``) without which it measures nothing, and those that it leaves out.
    NEEDS: Sequence[str]
    BESIDE: Sequence[str]
    # Its options for ``--quick``.
    QUICK: Mapping[str, Any]

    def options(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, given: argparse.Namespace) -> Result: ...


def load(name: str) -> Bench:
    return cast(Bench, importlib.import_module(f"bench.{name}"))
