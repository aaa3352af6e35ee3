"""Keeps deployments as they shall be: their replicas are jobs."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import secrets
import socket
import threading
import time
from collections.abc import Iterable, Mapping
from typing import Any

from allranks.api.jobs import JobError
from allranks.core.replicas import (
    HOPELESS,
    STEADY,
    Replica,
    after_failure,
    decide,
    pause,
    starts_at_once,
)
from allranks.errors import AllranksError
from allranks.events import Kind
from allranks.serve.table import Backend, Route, Site, pack
from allranks.server.dependencies import Services
from allranks.server.endpoints.lines import Lines
from allranks.server.endpoints.router_process import RouterProcess
from allranks.server.endpoints.scaling import (
    Scaler,
    deployment_of,
    instances_of,
    ready_within,
    scale_of,
)
from allranks.server.http.public_listener import load
from allranks.server.loop.subscriptions import Change
from allranks.server.submission.submit import Submission, submit
from allranks.server.worker import Worker
from allranks.statuses import TERMINAL, JobStatus
from allranks.store.endpoints import DeploymentRow, EndpointRow, ReplicaRow
from allranks.store.jobs.job_rows import JobRow

log = logging.getLogger("allranks.endpoints")

# Seconds between two looks: while something changes, while a request may want the first replica,
# else.
_QUICK, _ALERT, _CALM = 0.05, 0.2, 1.0
# Seconds that who has changed an endpoint waits for the router to know.
_TELL = 10.0
# Seconds that a request waits for the first replica of a deployment that has none without requests.
_COLD = 30.0
# Replicas of a deployment that are submitted at one look: a mistyped number can be mended.
_MOST_STARTS = 10
# Ports of replicas on other machines: below those that systems give to connections.
_PORTS = range(12_000, 32_000)
# The key of the router's port among a home's single values.
_PORT = "serve.port"


class Keeper(Worker):
    def __init__(self, services: Services) -> None:
        super().__init__("endpoints")
        self._services = services
        self._router = RouterProcess(services.home.serve)
        self.lines = Lines(services.channels, services.records, self._router.sockets)
        self._is_paused = False
        # Held while it looks: no look starts a router again that `pause` has ended.
        self._looking = threading.Lock()
        self._canceled: set[str] = set()
        self._scaler = Scaler()
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
        super().start()

    def stop(self) -> None:
        super().stop()
        self._router.close()

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
        sites = self._services.endpoints.list()
        rows = self._services.endpoints.deployments()
        self.lines.keep(self._far(rows))
        if not sites and not rows:
            self._router_knows(number)
            self._router.end()
            return None
        settings = self._services.endpoints.settings
        address = self._router.ensure(settings.get(_PORT) or 0)
        port = int(address.rpartition(":")[2])
        if settings.get(_PORT) != port:
            settings.set(_PORT, port)
        order = {"sites": pack(good_sites(sites, rows)), "front": self._front()}
        counts = self._router.exchange(order)
        self._services.endpoints.counts = counts
        self._router_knows(number)
        self._services.endpoints.samples.take(counts, time.time())
        return min((self._try(row, counts.get(row.key, {})) for row in rows), default=_CALM)

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

    def _far(self, rows: list[DeploymentRow]) -> dict[str, tuple[str, int]]:
        """The socket and the port of each replica that runs on another machine."""
        ports = {}
        for item in (replica for row in rows for replica in row.replicas):
            kind, _, place = item.address.partition(":")
            job = self._services.records.latest(item.job) if kind == "far" else None
            if job is not None and job.record.status is JobStatus.RUNNING:
                name, _, port = place.partition(":")
                ports[item.job] = (name, int(port))
        return ports

    def _is_far(self, row: DeploymentRow) -> bool:
        """Whether its replicas run on other machines; False for a compute that is gone, which the
        submission tells."""
        try:
            compute = self._services.clusters.find(row.submission["spec"].get("compute"))
            return self._services.clusters.kind(compute).remote
        except AllranksError:
            return False

    def _try(self, row: DeploymentRow, counts: Mapping[str, Any]) -> float:
        """``_advance``, whose errors do not hold up the other deployments; the seconds until the
        next look."""
        try:
            if self._advance(row, counts):
                return _QUICK
            return _CALM if instances_of(row) else _ALERT
        except (AllranksError, OSError) as error:
            log.warning("%s: %s", row.key, error)
        except Exception:
            log.exception("%s: failed; retrying", row.key)
        return _CALM

    def _advance(self, row: DeploymentRow, counts: Mapping[str, Any]) -> bool:
        """Take the next steps of a deployment; whether it is on its way."""
        now = time.time()
        states = {item.job: self._observe(row, item, counts, now) for item in row.replicas}
        ready = [
            now - item.started_at
            for item in row.replicas
            if states[item.job].ready and item.revision == row.revision
        ]
        instances = self._scaler.instances(row, counts.get("busy", 0.0), bool(ready), now)
        if instances != instances_of(row):
            row = self._services.endpoints.scale(row, instances)
        instances = 0 if row.is_deleted else instances
        replicas: list[ReplicaRow] = []
        changes: dict[str, Any] = {}
        for item in row.replicas:
            state = states[item.job]
            if (state.ended or state.late) and item.drains_since is None:
                changes |= self._failed(row, item, state, counts, now)
        before, row = row, row._replace(**changes)  # the pause begins with the failure
        at_once = starts_at_once(row.failures, row.was_ready)
        steps = decide([*states.values()], row.revision, instances, now, row.next_try, at_once)
        for item in row.replicas:
            state = states[item.job]
            if state.ended:
                self._forget(item)
                continue
            leaves = item.job in steps.drain or state.late
            since = now if leaves and item.drains_since is None else item.drains_since
            replicas.append(
                item._replace(was_ready=item.was_ready or state.ready, drains_since=since)
            )
            if item.job in steps.stop:
                self._cancel(item.job)
        if ready:
            changes["ready_revision"] = row.revision
        if ready and len(ready) >= instances:
            changes["reason"] = None
            if min(ready) >= STEADY:
                changes["failures"] = 0
            if row.takes_traffic and instances:
                self._services.endpoints.move_traffic(row)
        new = [self._named(row) for _ in range(min(steps.start, _MOST_STARTS))]
        replicas += new
        made = {**changes, "replicas": tuple(replicas)}
        if any(before._asdict()[name] != value for name, value in made.items()):
            row = self._services.endpoints.change(row, **made)
        # They are on record before they start: no crash leaves one that nobody ends.
        for number, replica in enumerate(new):
            try:
                self._start(before, replica)
            except AllranksError as error:
                kept = tuple(item for item in replicas if item not in new[number:])
                columns = self._refused(row, error, now)
                row = self._services.endpoints.change(row, replicas=kept, **columns)
                break
        if row.is_deleted and not row.replicas:
            self._services.endpoints.forget(row)
            return False
        settled = (
            len(replicas) == instances
            and not row.takes_traffic
            and all(
                item.drains_since is None and states.get(item.job, Replica("", 0)).ready
                for item in replicas
            )
        )
        if starts_at_once(row.failures, row.was_ready) == 0:
            return any(item.drains_since is not None for item in replicas)
        return not settled and (row.failures == 0 or now >= row.next_try or bool(replicas))

    def _observe(
        self, row: DeploymentRow, replica: ReplicaRow, counts: Mapping[str, Any], now: float
    ) -> Replica:
        job = self._services.records.latest(replica.job)
        ended = job is None or job.record.status in TERMINAL
        report = counts.get("replicas", {}).get(replica.job, {})
        ready = bool(report.get("ready")) and not ended
        failures = int(report.get("failures", 0))
        late = not ended and not ready and self._is_late(row, replica, job, failures, now)
        return Replica(
            replica.job,
            replica.revision,
            ready,
            ended,
            late,
            replica.drains_since,
            int(report.get("running", 0)),
        )

    def _is_late(
        self,
        row: DeploymentRow,
        replica: ReplicaRow,
        job: JobRow | None,
        failures: int,
        now: float,
    ) -> bool:
        if replica.was_ready:
            # Not before its probes failed: a new router knows none as ready, and one request that
            # breaks its connection is no reason.
            if replica.address.startswith("far:") and not self.lines.is_settled(replica.job):
                return False
            return failures >= deployment_of(row).liveness_probe.failure_threshold
        if job is None or job.record.status is not JobStatus.RUNNING or job.started_at is None:
            return False
        return now - job.started_at > ready_within(row)

    def _failed(
        self,
        row: DeploymentRow,
        replica: ReplicaRow,
        state: Replica,
        counts: Mapping[str, Any],
        now: float,
    ) -> dict[str, Any]:
        """What a replica that ended by itself, or never got ready, changes."""
        lived = now - replica.started_at
        failures, wait = after_failure(row.failures, replica.was_ready, lived)
        why = counts.get("replicas", {}).get(replica.job, {}).get("reason")
        reason = f"{replica.job} was not ready within {ready_within(row):g} s: {why}"
        if state.ended:
            job = self._services.records.latest(replica.job)
            reason = f"{replica.job}: {_why(job.error if job is not None else None)}"
        elif replica.was_ready:
            reason = f"{replica.job} does not answer: {why}"
        log.warning("%s: %s", row.key, reason)
        columns = {"failures": failures, "reason": reason, "next_try": now + wait}
        return {**columns, "failed_job": replica.job}

    def _refused(self, row: DeploymentRow, error: AllranksError, now: float) -> dict[str, Any]:
        failures = row.failures + 1
        log.warning("%s: %s", row.key, error)
        columns = {"failures": failures, "reason": str(error), "next_try": now + pause(failures)}
        return {**columns, "failed_job": None}

    def _named(self, row: DeploymentRow) -> ReplicaRow:
        """A replica that is to start."""
        name = f"{row.endpoint}-{row.name}-r{row.revision}-{secrets.token_hex(3)}"
        address = f"unix:{secrets.token_hex(8)}"
        if self._is_far(row):
            # Nobody knows which port is free there: with one that is not, the next replica has
            # another.
            address = f"far:{secrets.token_hex(8)}:{random.choice(_PORTS)}"
        elif listens_on_port(row.submission["spec"]):
            address = f"tcp:{_free_port()}"
        return ReplicaRow(name, row.revision, address, time.time(), model=row.model)

    def _start(self, row: DeploymentRow, replica: ReplicaRow) -> None:
        """Submit the job of a replica. Raises AllranksError."""
        # lazy: as in `deployment_of`
        from allranks.spec.endpoint import image_port, starts_image

        made = Submission.load(row.submission)
        kind, _, place = replica.address.partition(":")
        where = {"PORT": place.rpartition(":")[2]}
        if kind == "unix":
            where = {"ALLRANKS_SERVE_SOCKET": str(self._router.sockets / place)}
        spec = dict(made.spec)
        deployment = deployment_of(row)
        if starts_image(deployment):  # which has its port in a network of its own
            where = {"PORT": str(image_port(deployment))}
            publish = f"--publish=127.0.0.1:{place.rpartition(':')[2]}:{where['PORT']}"
            spec["resources"] = {**(spec.get("resources") or {}), "docker_args": publish}
        own = {"ALLRANKS_ENDPOINT": row.endpoint, "ALLRANKS_MODEL_NAME": row.asset, **where}
        spec |= {
            "name": replica.job,
            "environment_variables": {**(spec.get("environment_variables") or {}), **own},
            "properties": {
                **(spec.get("properties") or {}),
                "allranks.endpoint": row.endpoint,
                "allranks.deployment": row.name,
            },
        }
        job, _ = submit(made._replace(spec=spec, serves=True), self._services, row.created_by)
        self._services.annotations.archive(job.id, True)  # lists are of what people run

    def _forget(self, replica: ReplicaRow) -> None:
        self._canceled.discard(replica.job)
        kind, _, place = replica.address.partition(":")
        if kind == "unix":  # one that was killed leaves it
            (self._router.sockets / place).unlink(missing_ok=True)

    def _cancel(self, name: str) -> None:
        if name in self._canceled:
            return
        job = self._services.records.latest(name)
        if job is not None and job.record.status not in TERMINAL and not job.record.canceled:
            self._services.records.append(name, [job.event(Kind.CANCEL_ASKED)])
            self._services.loops.wake(name)
        self._canceled.add(name)


def _why(error: JobError | None) -> str:
    if error is None:
        return "it ended"
    evidence = error.get("evidence")
    if evidence and evidence["where"]:  # the line of the user's code
        return f"failed at {evidence['where']}: {evidence['line']}"
    return error["message"]


def listens_on_port(spec: Mapping[str, Any]) -> bool:
    """Whether a replica has a port instead of a socket: programs of others, and containers."""
    environment = spec.get("environment")
    in_container = isinstance(environment, Mapping) and bool(
        environment.get("image") or environment.get("build")
    )
    return in_container or "-m allranks_scoring" not in spec["command"]


def _free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return int(made.getsockname()[1])


def good_sites(sites: Iterable[EndpointRow], rows: list[DeploymentRow]) -> list[Site]:
    """What the router is told of all endpoints. One that fails is left out, so that its old keys
    are not accepted, and the others go on."""
    made = []
    for item in sites:
        try:
            made.append(site(item, rows))
        except Exception:
            log.exception("%s: left out of the router's table", item.name)
    return made


def site(row: EndpointRow, rows: list[DeploymentRow]) -> Site:
    """What the router is told of an endpoint. ``rows`` are all deployments."""
    own = [item for item in rows if item.endpoint == row.name and not item.is_deleted]
    from allranks.spec.endpoint import parse_endpoint  # lazy: as in `deployment_of`

    spec = parse_endpoint(row.spec)  # in the file numbers may be text
    return Site(
        row.name,
        None if spec.auth_mode == "none" else tuple(row.keys),
        spec.traffic,
        spec.mirror_traffic,
        tuple(map(_route, own)),
        spec.access_log,
    )


def _route(row: DeploymentRow) -> Route:
    from allranks.spec.endpoint import path_of  # lazy: as in `deployment_of`

    spec = deployment_of(row)
    settings, live = spec.request_settings, spec.liveness_probe
    scale = scale_of(row)
    is_cold = scale is not None and scale.least == 0 and row.failures < HOPELESS
    return Route(
        name=row.name,
        backends=tuple(
            Backend(item.job, _address(item), item.drains_since is not None, item.model)
            for item in row.replicas
        ),
        timeout=settings.request_timeout_ms / 1000,
        queue_wait=settings.max_queue_wait_ms / 1000,
        cold=_COLD if is_cold else 0.0,
        concurrency=settings.max_concurrent_requests_per_instance,
        ready_path=spec.readiness_probe.path or path_of(row.spec, "readiness_route") or "/",
        live_path=live.path or path_of(row.spec, "liveness_route") or "/",
        probe_timeout=float(live.timeout),
        period=float(live.period),
        failures=live.failure_threshold,
    )


def _address(replica: ReplicaRow) -> str:
    """Where the router meets it: another machine's at the socket that leads there."""
    kind, _, place = replica.address.partition(":")
    return f"unix:{place.partition(':')[0]}" if kind == "far" else replica.address
