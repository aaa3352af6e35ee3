"""The server itself: its state, public address, tokens, maps and garbage collection."""

from __future__ import annotations

from typing import NotRequired

from typing_extensions import TypedDict


class ServerAnswer(TypedDict):
    """The server, and the calling user."""

    pid: int
    version: str
    home: str
    live_jobs: int
    user: str
    role: str


class VisitAnswer(TypedDict):
    """``before``: when the caller's visit before this one ended; None if this is the first."""

    before: str | None


class StopAnswer(TypedDict):
    """The jobs that are being canceled, and the number of live jobs that stay."""

    canceled: list[str]
    left: int


class PublicEndpoint(TypedDict):
    """Where clients of other machines connect. ``url`` is None if the listener is closed."""

    url: str | None
    fingerprint: str


class PublicRequest(TypedDict):
    """Where the server is to listen for other machines; ``host`` None: nowhere."""

    host: str | None
    port: NotRequired[int]
    certificate: NotRequired[str]
    tls: NotRequired[bool]


class ChangesAnswer(TypedDict):
    """A number that grows with each change."""

    number: int


class TokenAnswer(TypedDict):
    """A person's token, without the token itself."""

    name: str
    role: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class CallerAnswer(TypedDict):
    """Whose token a request has; ``expires_at`` is None where it is valid until revoked."""

    name: str
    role: str
    expires_at: str | None


class CreatedToken(TokenAnswer):
    token: str


class RemovedItem(TypedDict):
    """Something that garbage collection deleted, or would."""

    kind: str
    name: str
    path: str
    why: str
    bytes: int
    used_at: str | None


class FailedRemoval(TypedDict):
    path: str
    message: str


class KeptPart(TypedDict):
    """A part of the home that stays."""

    kind: str
    bytes: int
    why: str


class GcAnswer(TypedDict):
    """What garbage collection deleted. A dry run also says what is ``kept``. ``recent_jobs`` would
    go, too, once they have ended for a minute."""

    dry_run: bool
    bytes: int
    items: list[RemovedItem]
    failed: list[FailedRemoval]
    recent_jobs: NotRequired[int]
    kept: NotRequired[list[KeptPart]]
    home_bytes: NotRequired[int]


class InstancesMap(TypedDict):
    """How many GPUs instance types have. ``own`` is what this home configured, ``none`` are
    families without GPUs."""

    map: dict[str, int]
    own: dict[str, int]
    none: list[str]
