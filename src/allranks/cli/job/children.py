"""Follow a job with children, a sweep or a pipeline, on a terminal or in a pipe."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

from allranks.cli.output import show
from allranks.cli.output.rank_output import Printer
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import Following

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer, StreamedJob
    from allranks.sdk.jobs.follow import Children

ENDED = ("Completed", "Failed", "Canceled")


class ChildrenViewer(ABC):
    """Shows news of the children and, on a terminal, a line with the progress. With ``logs``, the
    output of all children, or of their ``ranks``; ``prefixed``: behind the children's names."""

    def __init__(
        self,
        name: str,
        *,
        quiet: bool = False,
        json: bool = False,
        logs: bool = True,
        raw: bool = False,
        ranks: list[int] | None = None,
        prefixed: bool | None = None,
    ) -> None:
        self._name, self._quiet = name, quiet
        self._line = show.StatusLine(quiet)
        to = sys.stderr if json else sys.stdout
        self._printer = Printer(1, to, prefixed, raw, label=self.label)
        self._printed: set[str] = set()
        self._following = Following(
            find_server.connect,
            name,
            request={"logs": logs, "ranks": ranks},
            changed=self._changed,
        )

    @abstractmethod
    def lines(self, job: StreamedJob, children: Children) -> Iterator[tuple[str, str]]:
        """The news of a job, each with the status that it is coloured by."""

    def label(self, child: str) -> str:
        """What stands before the lines of a child."""
        return child

    @abstractmethod
    def progress(self, job: StreamedJob) -> str:
        """One line that sums up a live job."""

    def follow(self) -> JobAnswer:
        """Show the job until it has ended; returns it."""
        try:
            for piece in self._following.pieces():
                if piece:
                    self._line.clear()
                    self._printer.put(piece)
        finally:
            self._line.clear()
            self._printer.end()
        return self._following.job

    def is_new(self, key: str) -> bool:
        """Whether this was not asked before: streams may be repeated."""
        new = key not in self._printed
        self._printed.add(key)
        return new

    def _changed(self, job: StreamedJob, children: Children) -> None:
        self._line.clear()
        for child in children:
            if child["status"] in ENDED:
                self._printer.end(child["job"] or "")
        if self._quiet:
            return
        if (reason := job["status_reason"]) and self.is_new(reason):
            self._printer.hide()
            show.talk(f"{job['name']} {job['status']}: {reason}")
        for text, status in self.lines(job, children):
            self._printer.hide()
            show.talk(text, status)
        # Nothing is drawn below an unfinished line, such as a progress bar.
        if job["status"] not in ENDED and not self._printer.is_live:
            self._line.say(self.progress(job))


def progress(job: StreamedJob, total: int, kind: str) -> str:
    """One line: `sw Running: 7 of 20 trials, 4 running, 1 failed`."""
    counts = job["counts"]
    ended = sum(counts.get(each, 0) for each in ENDED)
    text = f"{job['name']} {job['status']}: {ended} of {total} {kind}"
    if live := sum(counts.values()) - ended:
        text += f", {live} running"
    return text + (f", {counts['Failed']} failed" if counts.get("Failed") else "")
