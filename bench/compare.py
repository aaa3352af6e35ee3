"""Compare two results: which medians became worse, beyond what chance explains?

The ratio of the medians has a 95 % bootstrap interval. A regression is a ratio beyond the threshold
whose whole interval is on the same side of 1. A single sample is its own interval.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench.report import table
from bench.stats import ratio_of_medians

Key = tuple[str, str, str]


class Change(NamedTuple):
    """How many times the old cost the new one is; 2 is twice as slow, or half the rate."""

    benchmark: str
    name: str
    unit: str
    ratio: float
    low: float
    high: float

    def verdict(self, threshold: float) -> str:
        if self.ratio > threshold and self.low > 1:
            return "WORSE"
        return "better" if self.ratio < 1 / threshold and self.high < 1 else ""


def options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("old", type=Path, metavar="OLD.json", help="a result of one benchmark or of all")
    add("new", type=Path, metavar="NEW.json", help="a later one")
    what = "a regression is at least so many times as slow (1.1)"
    add("--threshold", type=float, default=1.1, metavar="RATIO", help=what)


def main(given: argparse.Namespace) -> int:
    try:
        old, new = (json.loads(path.read_text()) for path in (given.old, given.new))
    except (OSError, ValueError) as error:
        print(f"error: not a result of bench: {error}", file=sys.stderr)
        return 2
    changes = compare(old, new)
    if not changes:
        print("error: the two have no benchmark in common", file=sys.stderr)
        return 2
    if _where(old) != _where(new):
        print(f"another machine: {_where(old)} before, {_where(new)} now")
    rows = [
        (
            f"{each.benchmark}: {each.name}",
            each.unit,
            f"{each.ratio:.3f}",
            f"{each.low:.3f} to {each.high:.3f}",
            each.verdict(given.threshold),
        )
        for each in changes
    ]
    print(table(("", "unit", "× the old cost", "95 %", ""), rows))
    worse = [each for each in changes if each.verdict(given.threshold) == "WORSE"]
    print(f"{len(worse)} of {len(changes)} are worse, beyond {given.threshold:g} ×")
    return 1 if worse else 0


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """What both have samples of."""
    before, found = _series(old), []
    for key, values in _series(new).items():
        if not (was := before.get(key)):
            continue
        more_is_better = key[1].endswith("/s")
        one, other = (was, values) if more_is_better else (values, was)
        if min(other) > 0 and min(one) > 0:
            benchmark, unit, name = key
            found.append(Change(benchmark, name, unit, *ratio_of_medians(one, other)))
    return found


def _series(told: Mapping[str, Any]) -> dict[Key, Sequence[float]]:
    return {
        (result["bench"], unit, name): values
        for result in told.get("results", [told])
        for unit, samples in result.get("samples", {}).items()
        for name, values in samples.items()
        if values
    }


def _where(told: Mapping[str, Any]) -> str:
    machine = told.get("machine", {})
    return f"{machine.get('cpus')} × {machine.get('cpu')}, Python {machine.get('python')}"
