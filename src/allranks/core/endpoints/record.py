"""The record of an endpoint with its deployments: a fold over its events."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks.core.endpoints.scaling import Scale

if TYPE_CHECKING:
    from allranks.spec import endpoint as spec_of


class Replica(NamedTuple):
    """A replica that was started: a job.

    ``address``: `unix:NAME` in the folder of sockets, `tcp:PORT`, or `far:NAME:PORT`: a socket
    there that leads to a port of another machine.
    ``was_ready``: it has been.
    ``drains_since``: None while it gets requests.
    ``model``: the registered one that it answers with.
    """

    job: str
    revision: int
    address: str
    started_at: float
    was_ready: bool = False
    drains_since: float | None = None
    model: str = ""


class Revision(NamedTuple):
    """What an update changes. ``submission`` is the job of a replica, without its name; ``asset``
    the name of its model's file or folder."""

    spec: dict[str, Any]
    submission: dict[str, Any]
    asset: str
    revision: int


class Deployment(NamedTuple):
    """A deployment. Times in seconds since the epoch.

    ``previous``: the revision before it that was ready.
    ``failures``: tries in a row that ended; ``reason``: why the last one did.
    ``failed_job``: the last replica that failed.
    ``scaled``: the replicas that its load needs, where it scales.
    ``takes_traffic``: the percent that it gets of its endpoint's once it is ready.
    ``ready_revision``: the last one of which a replica was ready.
    ``is_deleted``: it is there until its replicas have ended.
    """

    endpoint: str
    name: str
    spec: dict[str, Any]
    submission: dict[str, Any]
    revision: int
    created_at: float
    created_by: str
    asset: str = ""
    previous: Revision | None = None
    replicas: tuple[Replica, ...] = ()
    failures: int = 0
    next_try: float = 0.0
    reason: str | None = None
    is_deleted: bool = False
    scaled: int | None = None
    failed_job: str | None = None
    takes_traffic: int = 0
    ready_revision: int = 0

    @property
    def key(self) -> str:
        return f"{self.endpoint}/{self.name}"

    @property
    def was_ready(self) -> bool:
        """Whether a replica of its revision was ready."""
        return self.ready_revision == self.revision

    @property
    def is_unproven(self) -> bool:
        """Whether none of its revision was ready so far: those of before still answer."""
        ready = {item.revision for item in self.replicas if item.was_ready}
        return bool(ready) and self.revision not in ready

    @property
    def current(self) -> Revision:
        return Revision(self.spec, self.submission, self.asset, self.revision)

    @property
    def model(self) -> str:
        """`azureml:NAME:VERSION`, or empty where none is registered."""
        return registered_model(self.spec)

    def models_in_use(self) -> set[str]:
        """The model of its specification, and those of the replicas that answer."""
        return {self.model, *(item.model for item in self.replicas if item.drains_since is None)}

    def parsed(self) -> spec_of.Deployment:
        """Its specification: in the file numbers may be text."""
        from allranks.spec.endpoint import parse_deployment  # lazy: most homes have no endpoints

        return parse_deployment(self.spec)

    @property
    def scale(self) -> Scale | None:
        """How it follows its load; None: it does not."""
        if not self.spec.get("scale_settings"):
            return None
        made = self.parsed()
        settings = made.scale_settings
        if settings is None or settings.type == "default":
            return None
        turns = made.request_settings.max_concurrent_requests_per_instance
        load = turns * settings.target_utilization_percentage / 100
        most = settings.max_instances or made.instance_count
        times = (settings.scale_down_delay, settings.polling_interval)
        return Scale(settings.min_instances, most, load, *times)

    @property
    def instances(self) -> int:
        """The replicas that it shall have."""
        count = self.parsed().instance_count
        if (scale := self.scale) is None:
            return count
        replicas = count if self.scaled is None else self.scaled
        return min(scale.most, max(scale.least, replicas))

    @property
    def ready_within(self) -> float:
        """Seconds from a replica's start until it must be ready."""
        probe = self.parsed().readiness_probe
        return float(probe.initial_delay + probe.period * probe.failure_threshold)


class Endpoint(NamedTuple):
    """An endpoint. ``keys``: the SHA-256 of its keys, in hexadecimal digits. ``deployments``: by
    name, deleted ones too until their replicas have ended; so is a deleted endpoint.
    ``version``: the number of its events."""

    name: str
    spec: dict[str, Any]
    created_at: float
    created_by: str
    keys: tuple[str, ...] = ()
    is_deleted: bool = False
    deployments: Mapping[str, Deployment] = {}
    version: int = 1

    @property
    def traffic(self) -> Mapping[str, int]:
        """The percents by deployment: in the file numbers may be text."""
        return self.parsed().traffic

    def parsed(self) -> spec_of.Endpoint:
        from allranks.spec.endpoint import parse_endpoint  # lazy: most homes have no endpoints

        return parse_endpoint(self.spec)

    @property
    def answering(self) -> list[Deployment]:
        """The deployments that are not deleted, by name."""
        rows = (self.deployments[name] for name in sorted(self.deployments))
        return [row for row in rows if not row.is_deleted]

    @property
    def is_gone(self) -> bool:
        return self.is_deleted and not self.deployments


def registered_model(spec: Mapping[str, Any]) -> str:
    """`azureml:NAME:VERSION`, or empty where none is registered."""
    model = spec.get("model")
    return model if isinstance(model, str) else ""
