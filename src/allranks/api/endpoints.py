"""Endpoints: what ``/endpoints`` answers."""

from __future__ import annotations

from typing import Literal

from typing_extensions import TypedDict

from allranks.api.common import Document

# `Failed`: no replica became ready in several tries; `UpdateFailed`: nor after an update, and those
# of before answer.
DeploymentState = Literal["Creating", "Ready", "Updating", "Degraded", "UpdateFailed", "Failed"]


class ReplicaAnswer(TypedDict):
    """One replica; ``job`` is the job that it is, ``host`` where it runs on a cluster. ``reason``:
    why it is not ready."""

    job: str
    host: str | None
    ready: bool
    reason: str | None


class RequestCounts(TypedDict):
    """Requests since the router started; ``rate``: requests per second in the last minute.
    Latencies are in milliseconds, of the last minute and at most 1,000 requests; None if no
    request was answered in it."""

    rate: float
    requests: int
    errors: int
    refused: int
    running: int
    waiting: int
    p50: float | None
    p95: float | None
    p99: float | None


class DeploymentAnswer(TypedDict):
    """``ready`` of ``instances`` replicas answer, with ``model``. ``spec`` is the deployment as it
    was given, ``revision`` counts its updates. ``failed_job`` is the last replica of this revision
    that failed, also once others are ready; None if the last one could not be submitted.
    ``failures``: tries in a row that failed; ``tries``: that, and when the next one is, in words.
    ``takes_traffic``: it gets that of its endpoint's ``traffic_when_ready``."""

    name: str
    endpoint: str
    state: DeploymentState
    reason: str | None
    failed_job: str | None
    failures: int
    tries: str
    takes_traffic: bool
    ready: int
    instances: int
    revision: int
    model: str | None
    created_by: str
    created_at: str
    replicas: list[ReplicaAnswer]
    counts: RequestCounts | None
    notes: list[str]
    spec: Document


class EndpointAnswer(TypedDict):
    """``scoring_uri`` is None while the router is not up. ``public_uri`` is the address for other
    machines: None without TLS, or with `auth_mode: none`. ``state`` is the worst one of its
    deployments that get requests (of all, while none does), or `Empty`. ``compute``: that of
    deployments that name none."""

    name: str
    state: str
    description: str | None
    tags: dict[str, str]
    auth_mode: str
    scoring_uri: str | None
    public_uri: str | None
    traffic: dict[str, int]
    traffic_when_ready: dict[str, int]
    mirror_traffic: dict[str, int]
    compute: str | None
    created_by: str
    created_at: str
    deployments: list[DeploymentAnswer]
    notes: list[str]


class DeploymentSeries(TypedDict):
    """A value for each time of ``at``, in seconds since the epoch: ``requests``, ``errors`` and
    ``refused`` a second since the time before; then the requests that wait, the replicas that are
    ready, and latencies as in `RequestCounts`: None where no request came since the time before.
    All are None where the server was away."""

    name: str
    at: list[float]
    requests: list[float | None]
    errors: list[float | None]
    refused: list[float | None]
    waiting: list[int | None]
    ready: list[int | None]
    p50: list[float | None]
    p95: list[float | None]
    p99: list[float | None]


class EndpointEvent(TypedDict):
    """What has happened to an endpoint, or to one of its deployments, in words. ``job``: the
    replica that it is about; ``by``: who caused it, None for the server."""

    id: int
    at: str
    kind: str
    deployment: str | None
    job: str | None
    by: str | None
    message: str


class EndpointKeys(TypedDict):
    """The two keys of an endpoint: either one is accepted."""

    primary: str
    secondary: str
