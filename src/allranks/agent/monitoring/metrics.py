"""Metrics of an attempt on a node: what the agent has the scraper read, and tells of it.

The scraper ends with the ranks, as all that is below the agent does; what they printed last is read
by a second one, which goes on where the first was.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from allranks.agent.monitoring.metric_scraper import NAMES
from allranks.plan.metrics.patterns import of_rank
from allranks.plan.plan import MetricTask, Task, pack

_ARGV = (sys.executable, "-P", "-S", "-m", "allranks.agent.monitoring.metric_scraper")
# It needs nothing but this package and Python; marked, so that it is found when lost.
_OURS = {"PYTHONPATH": str(Path(__file__).absolute().parents[3])}
_NEEDED = ("PATH", "HOME", "ALLRANKS_GANG")
# Seconds to read what is left when ranks have ended: some hundred million lines.
_LONG = 300.0


class Metrics:
    """``logs`` are the files of this node's ranks; points are written ``into`` a file."""

    def __init__(self, task: Task, logs: Mapping[int, Path], into: Path) -> None:
        self._wanted = [each for each in task.metrics if _here(each, logs)]
        self._logs, self.into = logs, into
        self._child = self._start() if self._wanted else None

    def finish(self) -> list[dict[str, Any]]:
        """Have all read that ranks printed; facts for the record, each with a ``message``."""
        if self._child is None:
            return []
        self._end(self._child)
        rest = self._start()
        assert rest.stdin is not None
        rest.stdin.close()
        fd = os.pidfd_open(rest.pid)
        try:
            select.select([fd], [], [], _LONG)
        finally:
            os.close(fd)
            errors = self._end(rest)
        said = self._told()
        if said is None:
            why = errors[-1] if errors else f"exit code {rest.returncode}"
            return [{"message": f"not all metrics could be read from the output: {why}"}]
        return list(_told(said, self._wanted))

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            _ARGV,
            env=_OURS | {name: os.environ[name] for name in _NEEDED if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        request = {
            "metrics": pack(self._wanted),
            "logs": {rank: str(path) for rank, path in self._logs.items()},
            "into": str(self.into),
        }
        assert child.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(request).encode() + b"\n")
            child.stdin.flush()
        return child

    @staticmethod
    def _end(child: subprocess.Popen[bytes]) -> list[str]:
        """End it; what it had to complain of."""
        child.kill()
        child.wait()
        assert child.stdin is not None
        assert child.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        with child.stderr as errors:
            return errors.read().decode(errors="replace").strip().splitlines()

    def _told(self) -> dict[str, Any] | None:
        """The scraper's last line."""
        with contextlib.suppress(OSError, ValueError), self.into.open("rb") as file:
            *_, last = file
            found: dict[str, Any] | None = json.loads(last).get("end")
            return found
        return None


def _here(metric: MetricTask, logs: Mapping[int, Path]) -> bool:
    return any(of_rank([metric], rank) for rank in logs)


def _told(said: Mapping[str, Any], wanted: list[MetricTask]) -> Iterator[dict[str, Any]]:
    """What a person is told of metrics that were not found, or not always. One that was ``missed``
    may have been found on another node."""
    for metric in wanted:
        whose = "any rank" if metric.rank is None else f"rank {metric.rank}"
        name = f"the metric {metric.name!r}"
        if metric.name in said["off"]:
            why = "one with a repeat inside a repeat, as in `(a+)+`, does"
            message = f"{name} was dropped: its pattern took too long on several lines; {why}"
            yield {"message": message}
        elif count := said["slow"].get(metric.name):
            lines = f"{count} lines were" if count > 1 else "a line was"
            yield {"message": f"{lines} left out for {name}: its pattern took too long there"}
        elif metric.name in said["missed"]:
            message = f"{name} matched no line that {whose} printed"
            yield {"message": message, "missed": metric.name}
        if metric.name in said["many"]:
            yield {"message": f"{name} found more than {NAMES} names: the first so many are kept"}
        if text := said["odd"].get(metric.name):
            yield {"message": f"{name} found {text!r} where a number should be"}
        if text := said["steps"].get(metric.name):
            message = f"{name} found {text!r} where its step should be, and counted instead"
            yield {"message": message}
