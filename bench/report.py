"""A benchmark's result: a table for people, JSON with every raw sample for later."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from allranks import __version__
from bench import peers
from bench.stats import spread

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A promise, and the number that was found. Missing one is told, never an error: the machine
    may have been busy."""

    what: str
    found: float
    most: float | None = None
    least: float | None = None

    @property
    def met(self) -> bool:
        return (self.most is None or self.found <= self.most) and (
            self.least is None or self.found >= self.least
        )

    @property
    def bound(self) -> float | None:
        return self.least if self.most is None else self.most

    @property
    def verdict(self) -> str:
        bound = f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"
        return f"{bound}: {'met' if self.met else 'MISSED'}"

    def __str__(self) -> str:
        return f"{self.what}: {number(self.found)} ({self.verdict})"


@dataclass(frozen=True, kw_only=True)
class Result:
    """``samples`` has, by unit and then by name, what ``bench compare`` compares: of a unit that
    ends in ``/s``, more is better, of any other less. ``wrong`` is what must never be: lost output,
    a failed job, a process that stayed."""

    name: str
    text: str
    samples: Mapping[str, Mapping[str, Sequence[float]]] = field(default_factory=dict)
    data: Mapping[str, Any] = field(default_factory=dict)
    bars: Sequence[Bar] = ()
    wrong: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def show(self) -> str:
        """All of it, as it is printed."""
        notes = [f"left out: {each}" for each in self.left_out]
        notes += [f"bar: {each}" for each in self.bars]
        notes += [f"WRONG: {each}" for each in self.wrong]
        return "\n".join([*([self.text] if self.text else []), *notes])

    def json(self) -> dict[str, Any]:
        return {
            "bench": self.name,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "argv": sys.argv[1:],
            "machine": machine(),
            "samples": {unit: dict(by_name) for unit, by_name in self.samples.items()},
            **self.data,
            "bars": [
                {"what": bar.what, "found": bar.found, "bound": bar.bound, "met": bar.met}
                for bar in self.bars
            ],
            "left_out": list(self.left_out),
            "wrong": list(self.wrong),
        }


def nothing(name: str, why: str) -> Result:
    """The result of a benchmark that cannot run here."""
    return Result(name=name, text="nothing was measured", left_out=[why])


def new_file(name: str) -> Path:
    return FOLDER / f"{name}-{datetime.now(UTC):%Y%m%d-%H%M%S}.json"


def write(path: Path, told: Mapping[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(told, indent=2) + "\n")


def machine() -> dict[str, Any]:
    """Where it was measured, and how busy that was just now."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "cpu": _cpu(),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "allranks": __version__,
        "peers": peers.versions(),
        "load_1_5_15": [round(each, 2) for each in os.getloadavg()],
    }


def number(value: float) -> str:
    """Three digits, and all of a whole number."""
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns: the first to the left, numbers to the right."""
    lines = [head, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def spreads(title: str, samples: Mapping[str, Sequence[float]], digits: int = 2) -> str:
    """A table of median, smallest and largest of each, in the order given."""
    return table((title, *spread([0.0])), list(spread_rows(samples, digits)))


def spread_rows(
    samples: Mapping[str, Sequence[float]], digits: int = 2
) -> Iterator[tuple[str, ...]]:
    for name, values in samples.items():
        yield (name, *(f"{value:.{digits}f}" for value in spread(values).values()))


def markdown(results: Sequence[Result]) -> str:
    """One table of all medians and bars."""
    rows = [
        ("benchmark", "measured", "median", "unit", "bar"),
        ("---", "---", "---:", "---", "---"),
    ]
    for result in results:
        for unit, samples in result.samples.items():
            for name, values in samples.items():
                if values:
                    rows.append((result.name, name, number(median(values)), unit, ""))
        for bar in result.bars:
            rows.append((result.name, f"**{bar.what}**", number(bar.found), "", bar.verdict))
        rows += [(result.name, f"left out: {each}", "", "", "") for each in result.left_out]
        # The last line of several is that of an exception.
        last = [each.strip().rpartition("\n")[2] for each in result.wrong]
        rows += [(result.name, f"WRONG: {each}", "", "", "") for each in last]
    escaped = ([cell.replace("|", "\\|") for cell in row] for row in rows)
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
