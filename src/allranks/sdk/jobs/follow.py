"""Follow a job to its end, across restarts of the server."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TextIO

from allranks.errors import ServerError, TimedOut, Unreachable
from allranks.http_client import Client
from allranks.sdk.connection.urls import job_path

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


def submission_notes(told: Mapping[str, Any], to: TextIO) -> None:
    """Write on ``to`` what the server said about a job that it took."""
    _REPORTED.add(str(told["name"]))
    for note in (*told.get("notes", ()), *(told.get("environment") or {}).get("notes", ())):
        print(f"note: {note}", file=to, flush=True)


def substitute_note(to: TextIO) -> Callable[[dict[str, Any]], None]:
    """Report once on ``to`` that the job's environment is substituted."""
    done = False

    def note(job: dict[str, Any]) -> None:
        nonlocal done
        found = job.get("environment") or {}
        if found.get("asked_for") and not done and job.get("name") not in _REPORTED:
            name = found.get("name") or found.get("image")
            print(f"note: environment: {name} (requested: {found['asked_for']})", file=to)
        done = True

    return note


class Following:
    """Follows one job, for at most ``seconds`` if given. ``job`` is its latest known record."""

    def __init__(
        self,
        connect: Callable[[], Client],
        name: str,
        *,
        wanted: Mapping[str, Any] | None = None,
        changed: Callable[[dict[str, Any]], None] = lambda job: None,
        seconds: float | None = None,
    ) -> None:
        self.job: dict[str, Any] = {}
        self._connect, self._name = connect, name
        self._wanted, self._changed = dict(wanted or {}), changed
        self._positions: dict[str, int] = {}
        self._seconds = seconds
        self._until = float("inf") if seconds is None else time.monotonic() + seconds

    def pieces(self) -> Iterator[dict[str, Any]]:
        """Pieces of output until the job has ended, each once and in order per rank. Raises
        TimedOut."""
        away_since: float | None = None
        while True:
            try:
                client = self._connect()
                for piece in self._one_connection(client):
                    away_since = None
                    if piece:
                        yield piece
                return
            except ServerError:  # down, or temporarily failing (a full disk)
                self._hold_to_time()
                away_since = away_since or time.monotonic()
                if time.monotonic() - away_since > _PATIENCE:
                    raise
                time.sleep(0.2)

    def _one_connection(self, client: Client) -> Iterator[dict[str, Any]]:
        wanted = {**self._wanted, "positions": self._positions}
        ended = False
        path = job_path(self._name, "/stream")
        left = self._until - time.monotonic()
        silence = min(max(left, _LEAST), _PATIENCE)
        for line in client.stream("POST", path, wanted, timeout=silence):
            told = json.loads(line) if line else {}
            if "job" in told:
                self.job = told["job"]
                ended = told["last"]
                self._changed({**self.job, "changed_children": told.get("children", [])})
            if self.job and not ended:  # of one that has ended nothing comes before the last
                self._hold_to_time()
            if "log" not in told:
                yield {}  # a sign of life
                continue
            child = f"{told['child']}:" if "child" in told else ""
            self._positions[f"{child}{told['attempt']}/{told['rank']}"] = told["offset"]
            yield told
        if not ended:
            raise Unreachable(f"the server at {client.url} closed the connection")

    def _hold_to_time(self) -> None:
        """Raises TimedOut once it is up."""
        if time.monotonic() < self._until:
            return
        status = f" {self.job['status']}" if self.job else ""
        raise TimedOut(
            f"{self._name} is still{status or ' running'} after {self._seconds:g} s",
            hint="it keeps running: wait longer or cancel it",
        )
