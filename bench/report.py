"""A benchmark's result: a table for people, JSON with every raw sample for later."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from allranks import __version__

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

    def __str__(self) -> str:
        bound = f"at most {self.most:g}" if self.most is not None else f"at least {self.least:g}"
        return f"{self.what}: {self.found:.3g} ({bound}: {'met' if self.met else 'MISSED'})"


@dataclass(frozen=True, kw_only=True)
class Result:
    """``wrong`` is what must never be: lost output, a failed job, a process that stayed."""

    name: str
    text: str
    data: Mapping[str, Any]
    bars: Sequence[Bar] = ()
    wrong: Sequence[str] = ()
    left_out: Sequence[str] = ()

    def show(self) -> str:
        """All of it, as it is printed."""
        notes = [f"left out: {each}" for each in self.left_out]
        notes += [f"bar: {each}" for each in self.bars]
        notes += [f"WRONG: {each}" for each in self.wrong]
        return "\n".join([self.text, *notes])

    def write(self, path: Path | None) -> Path:
        """Write the JSON to ``path``, or to a new file in ``bench/results``; where it is."""
        at = datetime.now(UTC)
        path = path or FOLDER / f"{self.name}-{at:%Y%m%d-%H%M%S}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        data = {
            "bench": self.name,
            "at": at.isoformat(timespec="seconds"),
            "argv": sys.argv[1:],
            "machine": machine(),
            **self.data,
            "bars": [{"what": bar.what, "found": bar.found, "met": bar.met} for bar in self.bars],
            "left_out": list(self.left_out),
            "wrong": list(self.wrong),
        }
        path.write_text(json.dumps(data, indent=2) + "\n")
        return path


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
        "load_1_5_15": [round(each, 2) for each in os.getloadavg()],
    }


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


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()
