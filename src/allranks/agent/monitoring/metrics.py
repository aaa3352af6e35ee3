"""Run the scraper that reads an attempt's metrics from the logs, and report its problems.

The scraper ends with the ranks, like all processes below the agent. What is left is then read from
where it stopped: here if it is little, so that a short job costs no process, else by a second one.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.agent.monitoring.metric_scraper import NAMES, Scraper, last_line
from allranks.core.metrics.printed_metrics import of_rank
from allranks.core.packing import pack
from allranks.core.plan import MetricTask, Task

_ARGV = (sys.executable, "-P", "-S", "-m", "allranks.agent.monitoring.metric_scraper")
# It needs only this package and Python. ALLRANKS_GANG marks it for the clean-up of leftovers.
_OURS = {"PYTHONPATH": str(Path(__file__).absolute().parents[3])}
_NEEDED = ("PATH", "HOME", "ALLRANKS_GANG")
# Seconds to read the rest when ranks have ended: some hundred million lines.
_LONG = 300.0
# Bytes that are read in less time than a process starts.
_LITTLE = 1 << 18


class Metrics:
    """``logs`` are the files of this node's ranks; points are written ``into`` a file."""

    def __init__(self, task: Task, logs: Mapping[int, Path], into: Path) -> None:
        self._metrics = [
            metric for metric in task.metrics if any(of_rank([metric], rank) for rank in logs)
        ]
        self._logs, self.into = logs, into
        self._child: subprocess.Popen[bytes] | None = None
        self._over = False
        # For a process that starts in another thread when the ranks end.
        self._starting = threading.Lock()

    def begin(self) -> None:
        """Read while the ranks run, too."""
        with self._starting:
            if self._metrics and not self._over:
                # No process or memory is free: all is read later.
                with contextlib.suppress(OSError):
                    self._child = self._start()

    def finish(self) -> list[dict[str, Any]]:
        """Read the rest of the logs. Return notes for the record, each with a ``message``."""
        with self._starting:
            self._over = True
        if not self._metrics:
            return []
        if self._child is not None:
            self._end(self._child)
        try:
            why = self._read_rest()
        except Exception as error:  # what was written is damaged, a pattern is of a newer Python
            why = str(error) or type(error).__name__
        summary = self._summary()
        if summary is None:
            return [{"message": f"some metrics could not be read from the logs: {why}"}]
        return list(_notes(summary, self._metrics))

    def _read_rest(self) -> str:
        """Return why the summary may be missing."""
        with contextlib.closing(Scraper(self._request())) as scraper:
            if scraper.unread() <= _LITTLE:
                return scraper.read_rest(_LONG)
        rest = self._start()
        assert rest.stdin is not None
        rest.stdin.close()
        fd = os.pidfd_open(rest.pid)
        try:
            select.select([fd], [], [], _LONG)
        finally:
            os.close(fd)
            errors = self._end(rest)
        return errors[-1] if errors else f"exit code {rest.returncode}"

    def _request(self) -> dict[str, Any]:
        return {
            "metrics": pack(self._metrics),
            "logs": {rank: str(path) for rank, path in self._logs.items()},
            "into": str(self.into),
        }

    def _start(self) -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            _ARGV,
            env=_OURS | {name: os.environ[name] for name in _NEEDED if name in os.environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            process_group=0,
        )
        assert child.stdin is not None
        with contextlib.suppress(OSError):  # it has ended: `_end` tells why
            child.stdin.write(json.dumps(self._request()).encode() + b"\n")
            child.stdin.flush()
        return child

    @staticmethod
    def _end(child: subprocess.Popen[bytes]) -> list[str]:
        """End it. Return the lines of its error output."""
        child.kill()
        child.wait()
        assert child.stdin is not None
        assert child.stderr is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
        with child.stderr as errors:
            return errors.read().decode(errors="replace").strip().splitlines()

    def _summary(self) -> dict[str, Any] | None:
        """The scraper's last line."""
        with contextlib.suppress(OSError, ValueError), folder_trees.open_file(self.into) as file:
            state = json.loads(last_line(file.fileno())[0])
            return state.get("end") if isinstance(state, dict) else None
        return None


def _notes(summary: Mapping[str, Any], metrics: list[MetricTask]) -> Iterator[dict[str, Any]]:
    """Describe the problems of each metric. One that was ``missed`` may be found on another
    node."""
    for metric in metrics:
        whose = "any rank" if metric.rank is None else f"rank {metric.rank}"
        name = f"the metric {metric.name!r}"
        if metric.name in summary["off"]:
            why = "avoid a repeat inside a repeat, as in `(a+)+`"
            message = f"{name} was turned off: its pattern took too long on several lines; {why}"
            yield {"message": message}
        elif count := summary["slow"].get(metric.name):
            lines = f"{count} lines were" if count > 1 else "1 line was"
            yield {"message": f"{lines} skipped for {name}: its pattern took too long"}
        elif metric.name in summary["missed"]:
            message = f"{name} matched no line that {whose} printed"
            yield {"message": message, "missed": metric.name}
        if metric.name in summary["many"]:
            yield {"message": f"{name} found more than {NAMES} names: only the first are kept"}
        if text := summary["odd"].get(metric.name):
            yield {"message": f"{name} found {text!r} where a number should be"}
        if text := summary["steps"].get(metric.name):
            message = f"{name} found {text!r} where its step should be; its steps are counted"
            yield {"message": message}
