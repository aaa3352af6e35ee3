"""Following a job on a screen or into a pipe, and leaving with its exit code."""

from __future__ import annotations

import os
import sys
from datetime import datetime
from typing import Any

from allranks.cli import show
from allranks.sdk import finding
from allranks.sdk.following import Following

SUCCESS = "Completed"


class Printer:
    """Writes ranks' output to stdout line by line, so that no rank's line is cut by another's."""

    def __init__(self, nodes: int, to: Any = None, prefixed: bool | None = None) -> None:
        self._out = (to or sys.stdout).buffer
        self._prefixed = show.coloured(to or sys.stdout) if prefixed is None else prefixed
        self._nodes = nodes
        self._rests: dict[tuple[int, int], tuple[bytes, bytes]] = {}

    def put(self, piece: dict[str, Any]) -> None:
        key = (piece["attempt"], piece["rank"])
        before = b""
        if self._prefixed:
            before = show.prefix(piece["rank"], piece["node"], self._nodes).encode()
        data = piece["log"].encode(errors="surrogateescape")
        whole, newline, rest = (self._rests.get(key, (b"", b""))[1] + data).rpartition(b"\n")
        self._rests[key] = (before, rest)
        if newline:
            self._write(before, whole + newline)

    def end(self) -> None:
        """Write what ranks left without an end of line, with one."""
        for before, rest in self._rests.values():
            if rest:
                self._write(before, rest + b"\n")
        self._rests.clear()

    def _write(self, before: bytes, lines: bytes) -> None:
        if before:
            lines = b"".join(before + line for line in lines.splitlines(keepends=True))
        self._out.write(lines)
        self._out.flush()


def follow(
    name: str,
    *,
    nodes: int,
    ranks: list[int] | None = None,
    quiet: bool = False,
    json: bool = False,
    prefixed: bool | None = None,
) -> dict[str, Any]:
    """Print the job's output until it has ended; the job. Waiting is shown with its reason."""
    line = show.StatusLine(quiet)
    printer = Printer(nodes, sys.stderr if json else sys.stdout, prefixed)

    def changed(job: dict[str, Any]) -> None:
        waits = job["status"] in ("NotStarted", "Queued", "Provisioning", "Preparing")
        reason = f": {job['status_reason']}" if job.get("status_reason") else ""
        line.say(f"{name} {job['status']}{reason}") if waits else line.clear()

    following = Following(finding.connect, name, wanted={"ranks": ranks}, changed=changed)
    try:
        for piece in following.pieces():
            line.clear()
            printer.put(piece)
    finally:
        line.clear()
        printer.end()
    return following.job


def verdict(job: dict[str, Any], *, quiet: bool = False) -> int:
    """Say how the job ended and where its things are; the exit code that says the same."""
    error = job.get("error")
    if not quiet:
        took = ""
        if job["started_at"] and job["ended_at"]:
            span = datetime.fromisoformat(job["ended_at"]) - datetime.fromisoformat(
                job["started_at"]
            )
            took = f" after {show.seconds(span.total_seconds())}"
        tries = f", {job['attempts']} attempts" if job["attempts"] > 1 else ""
        show.talk(f"{job['name']}: {job['status']}{took}{tries}")
        outputs = os.path.join(job["folder"], "artifacts", "outputs")
        if job["status"] == SUCCESS and os.path.isdir(outputs) and os.listdir(outputs):
            show.talk(f"outputs: {outputs}")
    if error and job["status"] != "Canceled":
        show.talk(f"error: {error['message']}")
        if error["hint"] and not quiet:
            show.talk(f"\nhint: {error['hint']}")
    return exit_code(job)


def exit_code(job: dict[str, Any]) -> int:
    """The job's own code; 1 when it failed without one."""
    if job["status"] == SUCCESS:
        return 0
    return job["exit_code"] or 1
