"""Follow a job to its end, across restarts of the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, cast

from allranks.api import routes
from allranks.core.text import one_line
from allranks.errors import ServerError, TimedOut, UsageError
from allranks.http_client import Client

if TYPE_CHECKING:
    from allranks.api import jobs as api

    Children: TypeAlias = Sequence[api.TrialAnswer | api.StepAnswer]

# A killed local server is started again, as by any command. A server on another machine gets this
# long to return.
_PATIENCE = 60.0
# Even with little time left, read the status once.
_LEAST = 1.0


def answered(connect: Callable[[], Client], ask: Callable[[Client], Any]) -> Any:
    """The reply of a server that may be temporarily down."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            with connect() as client:
                return ask(client)
        except ServerError:
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


# Jobs whose environment this process has reported.
_REPORTED: set[str] = set()


def submission_notes(job: Mapping[str, Any], to: TextIO) -> None:
    """Write on ``to`` what the server said about a job that it took."""
    _REPORTED.add(str(job["name"]))
    for note in (*job.get("notes", ()), *(job.get("environment") or {}).get("notes", ())):
        print(one_line(f"note: {note}"), file=to, flush=True)


def substitute_note(to: TextIO) -> Callable[[api.StreamedJob, Children], None]:
    """Report once on ``to`` that the job's environment is substituted."""
    done = False

    def note(job: api.StreamedJob, _: Children) -> None:
        nonlocal done
        environment = cast("api.JobAnswer", job).get("environment")
        if (
            environment
            and environment.get("asked_for")
            and not done
            and job["name"] not in _REPORTED
        ):
            name = environment["name"] or environment.get("image")
            asked_for = environment["asked_for"]
            print(one_line(f"note: environment: {name} (requested: {asked_for})"), file=to)
        done = True

    return note


class Following:
    """Follows one job, for at most ``seconds`` if given (UsageError: no number). ``changed`` is
    called with each change of it, and with the children that have changed. ``job`` is its record
    once it has ended."""

    job: api.JobAnswer

    def __init__(
        self,
        connect: Callable[[], Client],
        name: str,
        *,
        request: Mapping[str, Any] | None = None,
        changed: Callable[[api.StreamedJob, Children], None] = lambda job, children: None,
        seconds: float | None = None,
    ) -> None:
        try:
            self._seconds = None if seconds is None else float(seconds)
        except (TypeError, ValueError):
            hint = "timeout=60, or leave it out"
            message = f"{seconds!r} is not a number of seconds"
            raise UsageError(message, where="timeout", hint=hint) from None
        self._status = ""
        self._connect, self._name = connect, name
        self._request, self._changed = dict(request or {}), changed
        self._positions: dict[str, int] = {}
        limit = float("inf") if self._seconds is None else self._seconds
        self._until = time.monotonic() + limit

    def pieces(self) -> Iterator[api.LogLine]:
        """Pieces of output until the job has ended, each once and in order per rank. Raises
        TimedOut."""
        return (piece for piece in self.news() if piece)

    def news(self) -> Iterator[api.LogLine | None]:
        """``pieces``, and None at each change of the job and every few seconds."""
        away_since: float | None = None
        while True:
            try:
                client = self._connect()
                for piece in self._one_connection(client):
                    away_since = None
                    yield piece
                return
            except ServerError:  # down, or temporarily failing (a full disk)
                self._hold_to_time()
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > _PATIENCE:
                    raise
                time.sleep(0.2)

    def _one_connection(self, client: Client) -> Iterator[api.LogLine | None]:
        request = {**self._request, "positions": self._positions}
        ended = False
        to = routes.stream_job.at(self._name)
        left = self._until - time.monotonic()
        silence = min(max(left, _LEAST), _PATIENCE)
        for text in client.stream(*to, request, timeout=silence):
            line: api.LogLine | api.JobLine | None = json.loads(text) if text else None
            if line is not None and "job" in line:
                if line["last"]:
                    self.job = line["job"]
                    ended = True
                self._status = line["job"]["status"]
                self._changed(line["job"], line.get("children", ()))
            if self._status and not ended:  # of one that has ended nothing comes before the last
                self._hold_to_time()
            if line is None or "job" in line:
                yield None  # a sign of life
                continue
            child = f"{line['child']}:" if "child" in line else ""
            self._positions[f"{child}{line['attempt']}/{line['rank']}"] = line["offset"]
            self._request.pop("tail", None)  # of the next connection all is new
            yield line
        if not ended:
            raise client.closed()

    def _hold_to_time(self) -> None:
        """Raises TimedOut once it is up."""
        if time.monotonic() < self._until:
            return
        raise TimedOut(
            f"{self._name} is still {self._status or 'running'} after {self._seconds:g} s",
            hint="it keeps running: wait longer or cancel it",
        )
