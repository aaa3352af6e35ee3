"""Replicas as jobs: their names and addresses, how they are submitted and cancelled."""

from __future__ import annotations

import contextlib
import random
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from allranks.agent.network.ports import LOOPBACK, free_port
from allranks.core.endpoints.decide import refused
from allranks.core.endpoints.events import Event
from allranks.core.endpoints.record import Deployment, Replica
from allranks.errors import AllranksError, NotFound
from allranks.server.dependencies import Services
from allranks.server.submission.submit import Submission, submit

# Ports of replicas on other machines: below those that systems give to connections.
_PORTS = range(12_000, 32_000)


class ReplicaJobs:
    """Of one thread. ``sockets``: the folder of the sockets that replicas of this machine have."""

    def __init__(self, services: Services, sockets: Path) -> None:
        self._services = services
        self._sockets = sockets
        self._canceled: set[str] = set()

    def _is_far(self, row: Deployment) -> bool:
        """Whether its replicas run on other machines; False for a compute that is gone, which the
        submission tells."""
        try:
            compute = self._services.clusters.find(row.submission["spec"].get("compute"))
            return self._services.clusters.kind(compute).remote
        except AllranksError:
            return False

    def named(self, row: Deployment, count: int, now: float) -> list[Replica]:
        """So many replicas that are to start."""
        is_far = count > 0 and self._is_far(row)
        return [self._named(row, is_far, now) for _ in range(count)]

    def carry_out(
        self,
        before: Deployment,
        after: Deployment | None,
        stop: Sequence[str],
        start: Sequence[Replica],
        now: float,
    ) -> list[Event]:
        """Cancel the jobs of some replicas, and submit those of new ones. ``after`` has those that
        are left; None: the deployment is gone. Returns what follows if one cannot be submitted."""
        for job in stop:
            self.cancel(job)
        left = {item.job for item in after.replicas} if after is not None else set[str]()
        self._forget(item for item in before.replicas if item.job not in left)
        if after is None:
            return []
        for number, replica in enumerate(start):
            try:
                self.start(after, replica)
            except AllranksError as error:
                return refused(after, [item.job for item in start[number:]], str(error), now)
        return []

    def _named(self, row: Deployment, is_far: bool, now: float) -> Replica:
        name = f"{row.endpoint}-{row.name}-r{row.revision}-{secrets.token_hex(3)}"
        address = f"unix:{secrets.token_hex(8)}"
        if is_far:
            # Nobody knows which port is free there: with one that is not, the next replica has
            # another.
            address = f"far:{secrets.token_hex(8)}:{random.choice(_PORTS)}"
        elif listens_on_port(row.submission["spec"]):
            address = f"tcp:{free_port(LOOPBACK)}"
        return Replica(name, row.revision, address, now, model=row.model)

    def start(self, row: Deployment, replica: Replica) -> None:
        """Submit the job of a replica. Raises AllranksError."""
        # lazy: most homes have no endpoints
        from allranks.spec.endpoint import image_port, starts_image

        made = Submission.load(row.submission)
        kind, _, place = replica.address.partition(":")
        where = {"PORT": place.rpartition(":")[2]}
        if kind == "unix":
            where = {"ALLRANKS_SERVE_SOCKET": str(self._sockets / place)}
        spec = dict(made.spec)
        deployment = row.parsed()
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

    def _forget(self, replicas: Iterable[Replica]) -> None:
        """Remove what replicas that ended have left."""
        for replica in replicas:
            self._canceled.discard(replica.job)
            kind, _, place = replica.address.partition(":")
            if kind == "unix":  # one that was killed leaves it
                (self._sockets / place).unlink(missing_ok=True)

    def cancel(self, name: str) -> None:
        if name in self._canceled:
            return
        with contextlib.suppress(NotFound):  # somebody has deleted it
            self._services.cancel(name)
        self._canceled.add(name)


def listens_on_port(spec: Mapping[str, Any]) -> bool:
    """Whether a replica has a port instead of a socket: programs of others, and containers."""
    environment = spec.get("environment")
    in_container = isinstance(environment, Mapping) and bool(
        environment.get("image") or environment.get("build")
    )
    return in_container or "-m allranks_scoring" not in spec["command"]
