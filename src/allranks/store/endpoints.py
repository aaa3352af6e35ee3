"""Endpoints and deployments: what shall be, and which jobs are the replicas."""

from __future__ import annotations

import builtins
import threading
from typing import Any, NamedTuple

from allranks import clock
from allranks.core.replicas import with_share
from allranks.core.request_samples import Samples
from allranks.errors import Conflict, NotFound
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets

_ENDPOINTS, _DEPLOYMENTS = "endpoints", "deployments"


class EndpointRow(NamedTuple):
    """``keys`` are the SHA-256 of its keys, in hexadecimal digits. Times in seconds since the
    epoch."""

    name: str
    spec: dict[str, Any]
    keys: list[str]
    created_at: float
    created_by: str


class ReplicaRow(NamedTuple):
    """A replica that was started. ``address``: `unix:NAME` in the folder of sockets, `tcp:PORT`, or
    `far:NAME:PORT`: a socket there that leads to a port of another machine. ``was_ready``: it has
    been. ``model``: the registered one that it answers with."""

    job: str
    revision: int
    address: str
    started_at: float
    was_ready: bool = False
    drains_since: float | None = None
    model: str = ""


class DeploymentRow(NamedTuple):
    """``submission`` is the job of a replica, without its name; ``previous`` has ``spec``,
    ``submission``, ``asset`` and ``revision`` of the one before it that was ready. ``failures``:
    tries in a row that ended; ``reason``: why the last one did; ``failed_job``: the last replica
    that failed. ``asset``: the name of its model's file or folder. ``scaled``: the replicas that
    its load needs, where it scales. ``takes_traffic``: the percent that it gets of its
    endpoint's once it is ready. ``ready_revision``: the last one of which a replica was ready."""

    endpoint: str
    name: str
    spec: dict[str, Any]
    submission: dict[str, Any]
    revision: int
    created_at: float
    created_by: str
    asset: str = ""
    previous: dict[str, Any] | None = None
    replicas: tuple[ReplicaRow, ...] = ()
    failures: int = 0
    next_try: float = 0.0
    reason: str | None = None
    is_deleted: bool = False
    scaled: int | None = None
    failed_job: str | None = None
    takes_traffic: int = 0
    ready_revision: int = 0

    @property
    def was_ready(self) -> bool:
        """Whether a replica of its revision was ready, since some version wrote that down."""
        return self.ready_revision == self.revision

    @property
    def key(self) -> str:
        return f"{self.endpoint}/{self.name}"

    @property
    def model(self) -> str:
        """`azureml:NAME:VERSION`, or empty where none is registered."""
        model = self.spec.get("model")
        return model if isinstance(model, str) else ""

    def models_in_use(self) -> set[str]:
        """The model of its specification, and those of the replicas that answer."""
        return {self.model, *(item.model for item in self.replicas if item.drains_since is None)}


class Endpoints:
    """The endpoints and deployments of a home. Thread-safe; who writes what depends on what it has
    read holds ``lock``."""

    def __init__(self, settings: Settings, secrets: Secrets) -> None:
        self.settings = self._settings = settings
        # The keys of each endpoint: `primary` and `secondary`.
        self.keys = secrets
        # What the router said last of each deployment, by `ENDPOINT/NAME`.
        self.counts: dict[str, Any] = {}
        self.samples = Samples()
        self.lock = threading.RLock()

    def list(self) -> list[EndpointRow]:
        """All endpoints by name."""
        several = self._settings.get(_ENDPOINTS) or {}
        return [EndpointRow(**several[name]) for name in sorted(several)]

    def get(self, name: str) -> EndpointRow:
        """Raises NotFound."""
        data = (self._settings.get(_ENDPOINTS) or {}).get(name)
        if data is None:
            raise NotFound(f"endpoint {name!r} not found", hint="allranks endpoint list")
        return EndpointRow(**data)

    def put(self, row: EndpointRow, *, new: bool = False) -> None:
        """Create or replace an endpoint. Raises Conflict for a ``new`` one whose name is taken."""
        with self.lock:
            self._put(row, new)

    def _put(self, row: EndpointRow, new: bool) -> None:
        if new and row.name in (self._settings.get(_ENDPOINTS) or {}):
            hint = f"allranks endpoint update {row.name}, or delete it first"
            raise Conflict(f"an endpoint named {row.name!r} already exists", hint=hint)
        self._settings.change(_ENDPOINTS, {row.name: row._asdict()})

    def delete(self, name: str) -> None:
        self._settings.change(_ENDPOINTS, {name: None})

    def deployments(self, endpoint: str | None = None) -> builtins.list[DeploymentRow]:
        """Those of an endpoint, or all; deleted ones too, until their replicas have ended."""
        several = self._settings.get(_DEPLOYMENTS) or {}
        rows = [_deployment(several[key]) for key in sorted(several)]
        return [row for row in rows if endpoint in (None, row.endpoint)]

    def deployment(self, endpoint: str, name: str) -> DeploymentRow:
        """Raises NotFound."""
        for row in self.deployments(endpoint):
            if row.name == name and not row.is_deleted:
                return row
        hint = f"allranks deployment list -e {endpoint}"
        raise NotFound(f"deployment {name!r} of endpoint {endpoint!r} not found", hint=hint)

    def create_deployment(self, row: DeploymentRow) -> DeploymentRow:
        """Also while replicas of a deleted one of that name stop, as those of an earlier revision.
        Raises Conflict if there is one of that name, NotFound without its endpoint."""
        with self.lock:
            self.get(row.endpoint)
            before = (self._settings.get(_DEPLOYMENTS) or {}).get(row.key)
            if before is not None:
                old = _deployment(before)
                if not old.is_deleted:
                    hint = "update it: allranks deployment update -f FILE"
                    raise Conflict(f"a deployment named {row.key!r} already exists", hint=hint)
                now = clock.now()
                stopping = [
                    item if item.drains_since else item._replace(drains_since=now)
                    for item in old.replicas
                ]
                revision = 1 + max([old.revision, *(item.revision for item in stopping)])
                row = row._replace(revision=revision, replicas=tuple(stopping))
            self._settings.change(_DEPLOYMENTS, {row.key: row._asdict()})
            return row

    def change(self, row: DeploymentRow, **columns: Any) -> DeploymentRow:
        """Change columns of the deployment as it is now. Raises NotFound."""
        with self.lock:
            made = self._current(row)._replace(**columns)
            self._settings.change(_DEPLOYMENTS, {row.key: made._asdict()})
            return made

    def keep_traffic(self, endpoint: str) -> None:
        """No deployment of an endpoint takes its traffic when it is ready."""
        with self.lock:
            for row in self.deployments(endpoint):
                if row.takes_traffic:
                    self.change(row, takes_traffic=0)

    def move_traffic(self, row: DeploymentRow) -> None:
        """A deployment gets the traffic that it takes. The second call, when the router knows it,
        ends that."""
        with self.lock:
            now = self._current(row)
            if not now.takes_traffic or now.is_deleted or now.revision != row.revision:
                return
            endpoint = self.get(row.endpoint)
            before = endpoint.spec.get("traffic") or {}
            traffic = with_share(before, row.name, now.takes_traffic)
            if before.get(row.name) == traffic[row.name]:
                self.change(row, takes_traffic=0)
            else:
                self.put(endpoint._replace(spec={**endpoint.spec, "traffic": traffic}))

    def scale(self, row: DeploymentRow, replicas: int) -> DeploymentRow:
        """Change ``scaled``, unless there is a new revision by now."""
        with self.lock:
            is_same = self._current(row).revision == row.revision
            return self.change(row, scaled=replicas) if is_same else row

    def _current(self, row: DeploymentRow) -> DeploymentRow:
        data = (self._settings.get(_DEPLOYMENTS) or {}).get(row.key)
        if data is None:
            hint = f"allranks deployment list -e {row.endpoint}"
            raise NotFound(f"deployment {row.key!r} not found", hint=hint)
        return _deployment(data)

    def forget(self, row: DeploymentRow) -> None:
        """A deleted deployment whose replicas have ended, unless there is a new one by now."""
        with self.lock:
            if self._current(row).is_deleted:
                self._settings.change(_DEPLOYMENTS, {row.key: None})


def _deployment(data: dict[str, Any]) -> DeploymentRow:
    replicas = tuple(ReplicaRow(*values) for values in data["replicas"])
    takes = data.get("takes_traffic", 0)  # version 0.1 wrote True: all
    takes = 100 if takes is True else int(takes)
    return DeploymentRow(**{**data, "replicas": replicas, "takes_traffic": takes})
