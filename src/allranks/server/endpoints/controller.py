"""Keeps deployments as they shall be: their replicas are jobs."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.api.jobs import JobError
from allranks.core.endpoints.decide import CALM, QUICK, decide, starting
from allranks.core.endpoints.events import Event, Kind, sentence
from allranks.core.endpoints.load import Scaler
from allranks.core.endpoints.record import Endpoint, Replica
from allranks.core.endpoints.states import ReplicaState
from allranks.errors import AllranksError
from allranks.folder_trees import write_file
from allranks.server.dependencies import Services
from allranks.server.endpoints.replica_jobs import ReplicaJobs
from allranks.server.endpoints.replica_tunnels import ReplicaTunnels
from allranks.server.endpoints.router_process import RouterProcess
from allranks.server.endpoints.router_table import router_table
from allranks.server.http.public_listener import load
from allranks.server.loop.subscriptions import Change
from allranks.server.worker import Worker
from allranks.settings import read_json
from allranks.statuses import TERMINAL, JobStatus

log = logging.getLogger("allranks.endpoints")

# Seconds that who has changed an endpoint waits for the router to know.
_TELL = 10.0
# Seconds between two copies of the samples for the next server.
_COPY = 60.0
# The key of the router's port among a home's single values.
_PORT = "serve.port"


class Changed(Exception):
    """An endpoint has changed since it was read: decide again."""


class Controller(Worker):
    def __init__(self, services: Services) -> None:
        super().__init__("endpoints")
        self._services = services
        self._router = RouterProcess(services.home.serve)
        self.tunnels = ReplicaTunnels(services.channels, services.records, self._router.sockets)
        self._is_paused = False
        # Held while it looks: no look starts a router again that `pause` has ended.
        self._looking = threading.Lock()
        self._replicas = ReplicaJobs(services, self._router.sockets)
        self._scaler = Scaler()
        self._samples = Path(services.home.serve) / "samples.json"
        self._copied = time.monotonic()
        # How often `tell` was called, and of these the latest one that the router knows of.
        self._told = self._known = 0
        self._heard = threading.Condition()

    def start(self) -> None:
        for change, call in (
            (Change.ENDPOINT, self.wake),
            (Change.ROUTE, self.tell),
            (Change.STOP, self.pause),
        ):
            self._services.subscriptions.subscribe(change, call)
        with contextlib.suppress(TypeError, ValueError):  # a damaged copy is no loss
            self._services.endpoints.samples.restore(read_json(self._samples, dict))
        super().start()

    def stop(self) -> None:
        super().stop()
        self._router.close()
        self._keep_samples()

    def _keep_samples(self) -> None:
        """Copy the samples for the next server."""
        self._copied = time.monotonic()
        if rows := self._services.endpoints.samples.rows:
            with contextlib.suppress(OSError):  # the disk is full
                write_file(self._samples, json.dumps(rows))

    def tell(self, _: str = "") -> bool:
        """Look now; whether the router knows what has changed, for which it waits `_TELL`."""
        with self._heard:
            self._told += 1
            number = self._told
            self.wake()
            self._heard.wait_for(lambda: self._known >= number or self._is_paused, _TELL)
            # One that does not run accepts nothing.
            return self._known >= number or self._router.address is None

    def _router_knows(self, number: int) -> None:
        with self._heard:
            self._known = number
            self._heard.notify_all()

    def pause(self, _: str = "") -> None:
        """The server stops for good: its replicas end, and are not started again."""
        with self._heard:
            self._is_paused = True
            self._heard.notify_all()
        with self._looking:
            self._router.end()

    def look(self, names: set[str]) -> float | None:
        with self._looking:
            return None if self._is_paused else self._look()

    def _look(self) -> float | None:
        """The seconds until the next look; None without endpoints."""
        number = self._told
        rows = self._services.endpoints.all()
        self.tunnels.keep(self._far(rows))
        if not rows:
            self._router_knows(number)
            self._router.end()
            return None
        settings = self._services.endpoints.settings
        order = {"sites": router_table(rows), "front": self._front()}
        before = settings.get(_PORT)
        counts, port = self._router.exchange(order, before or 0)
        if port != before:
            settings.set(_PORT, port)
        self._services.endpoints.counts = counts
        self._router_knows(number)
        self._services.endpoints.samples.take(counts, time.time())
        if time.monotonic() - self._copied >= _COPY:
            self._keep_samples()
        return min(self._advance_all(row, counts) for row in rows)

    def _front(self) -> dict[str, Any] | None:
        """Where the router listens for other machines: as the server, at the next port."""
        where = load(self._services.home)
        if where is None or not where.tls:
            return None
        certificate = where.certificate or str(self._services.home.certificate)
        order = {"host": where.host, "port": where.port + 1, "certificate": certificate}
        with contextlib.suppress(OSError):  # without it the router says what is missing
            order["renewed"] = os.stat(certificate).st_mtime
        return order

    def _far(self, endpoints: Sequence[Endpoint]) -> dict[str, tuple[str, int]]:
        """The socket and the port of each replica that runs on another machine."""
        ports = {}
        rows = (row for endpoint in endpoints for row in endpoint.deployments.values())
        for item in (replica for row in rows for replica in row.replicas):
            kind, _, place = item.address.partition(":")
            job = self._services.records.latest(item.job) if kind == "far" else None
            if job is not None and job.record.status is JobStatus.RUNNING:
                name, _, port = place.partition(":")
                ports[item.job] = (name, int(port))
        return ports

    def _advance_all(self, endpoint: Endpoint, counts: Mapping[str, Any]) -> float:
        """Advance each deployment; an error does not hold up the others. Returns the seconds until
        the next look."""
        wait, after = CALM, endpoint
        for key, row in sorted(endpoint.deployments.items()):
            try:
                after, seconds = self._advance(after, key, counts.get(row.key, {}))
                wait = min(wait, seconds)
            except Changed:
                return QUICK
            except (AllranksError, OSError) as error:
                log.warning("%s: %s", row.key, error)
            except Exception:
                log.exception("%s: failed; retrying", row.key)
        return wait

    def _advance(
        self, endpoint: Endpoint, name: str, counts: Mapping[str, Any]
    ) -> tuple[Endpoint, float]:
        """Observe the replicas of a deployment, decide, write down what has happened, and act. The
        endpoint after it, and the seconds until the next look. Raises Changed."""
        now, row = time.time(), endpoint.deployments[name]
        seen = [self._observe(item, counts) for item in row.replicas]
        is_ready = any(item.ready and item.revision == row.revision for item in seen)
        load = self._scaler.instances(row, counts.get("busy", 0.0), is_ready, now)
        decision = decide(endpoint, name, seen, load, now)
        new = self._replicas.named(row, decision.start, now)
        # They are on record before they start: no crash leaves one that nobody ends.
        endpoint = self._record(endpoint, [*decision.events, *(starting(name, r) for r in new)])
        after = endpoint.deployments.get(name)
        events = self._replicas.carry_out(row, after, decision.stop, new, now)
        return self._record(endpoint, events), decision.wait

    def _record(self, endpoint: Endpoint, events: list[Event]) -> Endpoint:
        """Raises Changed."""
        after = self._services.endpoints.apply(endpoint.name, endpoint, events)
        if after is None:
            raise Changed
        for event in events:
            level = logging.WARNING if event.kind in (Kind.FAILED, Kind.REFUSED) else logging.INFO
            log.log(level, "%s/%s: %s", endpoint.name, event.deployment, sentence(event))
        return after

    def _observe(self, replica: Replica, counts: Mapping[str, Any]) -> ReplicaState:
        job = self._services.records.latest(replica.job)
        report = counts.get("replicas", {}).get(replica.job, {})
        ended = job is None or job.record.status in TERMINAL
        ready = bool(report.get("ready")) and not ended
        failures, running_since = int(report.get("failures", 0)), None
        if replica.address.startswith("far:") and not self.tunnels.is_settled(replica.job):
            failures = 0
        if job is not None and job.record.status is JobStatus.RUNNING:
            running_since = job.started_at
        return ReplicaState(
            replica.job,
            replica.revision,
            ready,
            ended,
            drains_since=replica.drains_since,
            running=int(report.get("running", 0)),
            why=_why(job and job.error) if ended else str(report.get("reason")),
            failures=failures,
            running_since=running_since,
        )


def _why(error: JobError | None) -> str:
    if error is None:
        return "it ended"
    evidence = error.get("evidence")
    if evidence and evidence["where"]:  # the line of the user's code
        return f"failed at {evidence['where']}: {evidence['line']}"
    return error["message"]
