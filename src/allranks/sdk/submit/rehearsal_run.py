"""One of the two jobs of a rehearsal: follow it, read its metrics, clean it up."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from allranks.api import routes
from allranks.core.insights import rehearsal
from allranks.core.insights.rehearsal import Trail
from allranks.errors import NotFound
from allranks.sdk.connection import find_server
from allranks.sdk.jobs.follow import answered
from allranks.sdk.jobs.metrics import rounds

if TYPE_CHECKING:
    from allranks.api.metrics import MetricPoints

# Seconds between updates.
_PACE = 0.2
# A request in flight arrives within this many seconds, or never.
_ON_ITS_WAY = 2.0
# How long to wait for a canceled job to end.
_LEAVE = 60.0

Say = Callable[[str], None]


class Run:
    """One of the two jobs. Canceled on exit, and its state deleted."""

    def __init__(self, made: Mapping[str, Any], say: Say) -> None:
        self.job: Mapping[str, Any] = made
        self.name, self.say = str(made["name"]), say
        # Per attempt and metric the logged steps and values, and the time of the first.
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
            self._leave()  # pressing Ctrl-C again interrupts
            raise

    def _leave(self) -> None:
        until = time.monotonic() + _LEAVE
        ask(routes.cancel_job, self.name)
        self.job = ask(routes.wait_for_job, self.name, timeout=2)
        if not self.has_ended:
            with contextlib.suppress(OSError):  # the terminal is gone
                self.say(f"{self.name} canceled; its ranks have the grace period to end")
        while not self.has_ended and time.monotonic() < until:
            self.job = ask(routes.wait_for_job, self.name, timeout=5)
        try:
            # Never a state of the user with the same name.
            if self.has_ended and ask(routes.show_state, self.name)["own"]:
                ask(routes.delete_state, self.name)
        except NotFound:
            pass  # it has no state

    def looks(self) -> Iterator[None]:
        """Yield updates until the job has ended."""
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
        self.job = ask(routes.show_job, self.name)

    @property
    def has_ended(self) -> bool:
        return self.job["ended_at"] is not None

    def trail(self, attempt: int) -> Trail:
        return rehearsal.trail(self.points.get(attempt, {}))

    def _take(self, several: list[MetricPoints]) -> None:
        declared = self.job["spec"].get("metrics") or {}
        for series in several:
            if series["rank"] is not None and rehearsal.is_counted(series["name"], declared):
                continue
            logged = self.points.setdefault(series["attempt"], {}).setdefault(series["key"], [])
            logged += [(step, float(value)) for step, _, value in series["points"]]
            first = min(at for _, at, _ in series["points"])
            self.began[series["attempt"]] = min(first, self.began.get(series["attempt"], first))


def cancel(name: str) -> None:
    """Cancel the job, even if its submission may still be in flight."""
    until = time.monotonic() + _ON_ITS_WAY
    while time.monotonic() < until:
        try:
            ask(routes.cancel_job, name)
            return
        except NotFound:
            time.sleep(0.1)


def ask(route: routes.Route[routes.Answer], name: str, **query: Any) -> routes.Answer:
    """The reply of a server that may be temporarily down."""
    answer: routes.Answer = answered(
        find_server.connect, lambda client: client.ask(route, name, **query)
    )
    return answer
