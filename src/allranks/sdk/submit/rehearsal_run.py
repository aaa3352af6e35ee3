"""One of the two jobs of a rehearsal: followed, with what it logs, and taken away again."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any

from allranks.errors import NotFound
from allranks.plan.insights import rehearsal
from allranks.plan.insights.rehearsal import Trail
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path, state_path
from allranks.sdk.jobs.follow import answered
from allranks.sdk.jobs.metrics import rounds

# Seconds between two looks at what many nodes may have told meanwhile.
_PACE = 0.2
# What was sent to the server when it was broken off arrives within so many seconds, or never.
_ON_ITS_WAY = 2.0
# A canceled job has its grace to end; one that does not is left to its own end.
_LEAVE = 60.0

Say = Callable[[str], None]


class Run:
    """One of the two jobs, from its start to its end: canceled on the way out, its state gone."""

    def __init__(self, made: Mapping[str, Any], say: Say) -> None:
        self.job: Mapping[str, Any] = made
        self.name, self.say = str(made["name"]), say
        # Of each attempt, metric by metric, as they were logged: step, value; and the first's time.
        self.points: dict[int, dict[str, list[tuple[int, float]]]] = {}
        self.began: dict[int, float] = {}

    def __enter__(self) -> Run:
        nodes, ranks = self.job["nodes"], self.job["processes"]
        size = f"{nodes} node{'s' * (nodes > 1)}, {ranks} rank{'s' * (ranks > 1)}"
        self.say(f"{self.name}: {size}")
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        try:
            self._leave()
        except KeyboardInterrupt:
            self._leave()  # who means it does so once more
            raise

    def _leave(self) -> None:
        until = time.monotonic() + _LEAVE
        ask("POST", job_path(self.name, "/cancel"))
        self.job = ask("GET", job_path(self.name, "/wait?timeout=2"))
        if not self.has_ended:
            with contextlib.suppress(OSError):  # of a terminal that is gone
                self.say(f"{self.name} is canceled: its ranks have their grace to end")
        while not self.has_ended and time.monotonic() < until:
            self.job = ask("GET", job_path(self.name, "/wait?timeout=5"))
        try:
            # Not one of the user's that happens to have that name.
            if self.has_ended and ask("GET", state_path(self.name))["own"]:
                ask("DELETE", state_path(self.name))
        except NotFound:
            pass  # it has never kept anything

    def looks(self) -> Iterator[None]:
        """Again and again, with what is new, until the job has ended."""
        shown, due = "", 0.0
        for series in rounds(find_server.connect, self.name, wait=_PACE):
            self._take(series)
            if time.monotonic() < due:
                continue
            due = time.monotonic() + _PACE
            self.look()
            if (status := self.job["status"]) != shown:
                shown = status
                self.say(f"{self.name} is {status}")
            yield
        self.look()

    def look(self) -> None:
        self.job = ask("GET", job_path(self.name))

    @property
    def has_ended(self) -> bool:
        return self.job["ended_at"] is not None

    def trail(self, attempt: int) -> Trail:
        return rehearsal.trail(self.points.get(attempt, {}))

    def _take(self, several: list[dict[str, Any]]) -> None:
        asked = self.job["spec"].get("metrics") or {}
        for each in several:
            if each["rank"] is not None and rehearsal.is_counted(each["name"], asked):
                continue
            logged = self.points.setdefault(each["attempt"], {}).setdefault(each["key"], [])
            logged += [(step, float(value)) for step, _, value in each["points"]]
            first = min(at for _, at, _ in each["points"])
            self.began[each["attempt"]] = min(first, self.began.get(each["attempt"], first))


def cancel(name: str) -> None:
    """Of a job that may be about to be taken: what was sent just now may still be on its way."""
    until = time.monotonic() + _ON_ITS_WAY
    while time.monotonic() < until:
        try:
            ask("POST", job_path(name, "/cancel"))
            return
        except NotFound:
            time.sleep(0.1)


def ask(method: str, path: str) -> Any:
    """The answer of a server that may be away for a while."""
    return answered(find_server.connect, lambda client: client.json(method, path))
