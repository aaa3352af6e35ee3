"""Endpoints with their deployments as rows: each change appends and folds events in one
transaction."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, delete, insert, select, update

from allranks.core.endpoints.changes import deployment_of
from allranks.core.endpoints.events import Event, Kind
from allranks.core.endpoints.fold import fold_all
from allranks.core.endpoints.record import Deployment, Endpoint
from allranks.core.endpoints.request_samples import Samples
from allranks.core.packing import pack, unpack
from allranks.errors import NotFound
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets
from allranks.store.tables import endpoint_events as _events
from allranks.store.tables import endpoints as _table

# Events of an endpoint that are kept, the newest; the record has what the others changed.
KEPT_EVENTS = 1000


class StoredEvent(NamedTuple):
    """An event with its id."""

    id: int
    event: Event


class Endpoints:
    """The endpoints of a home. Thread-safe. Relies on one server for each database: what was read
    or written last is in memory, so that no look decodes it again."""

    def __init__(self, engine: Engine, settings: Settings, secrets: Secrets) -> None:
        self._engine = engine
        self._reading = engine.execution_options(read_only=True)
        self.settings = settings
        # The keys of each endpoint: `primary` and `secondary`; their hashes are in the record, and
        # who changes both holds ``keys_lock``.
        self.keys = secrets
        self.keys_lock = threading.Lock()
        # What the router said last of each deployment, by `ENDPOINT/NAME`.
        self.counts: dict[str, Any] = {}
        self.samples = Samples()
        self._lock = threading.Lock()
        self._latest: dict[str, Endpoint] | None = None

    def all(self) -> builtins.list[Endpoint]:
        """All endpoints by name, deleted ones too until their replicas have ended."""
        latest = self._rows()
        return [latest[name] for name in sorted(latest)]

    def list(self) -> builtins.list[Endpoint]:
        """The endpoints by name."""
        return [row for row in self.all() if not row.is_deleted]

    def find(self, name: str) -> Endpoint | None:
        """Also a deleted one, until its replicas have ended."""
        return self._rows().get(name)

    def get(self, name: str) -> Endpoint:
        """Raises NotFound."""
        row = self.find(name)
        if row is None or row.is_deleted:
            raise NotFound(f"endpoint {name!r} not found", hint="allranks endpoint list")
        return row

    def deployment(self, endpoint: str, name: str) -> Deployment:
        """Raises NotFound."""
        return deployment_of(self.get(endpoint), name)

    def deployments(self) -> builtins.list[Deployment]:
        """Those of all endpoints; deleted ones too, until their replicas have ended."""
        return [row for endpoint in self.all() for _, row in sorted(endpoint.deployments.items())]

    def create(self, name: str, rule: Callable[[Endpoint | None], Sequence[Event]]) -> Endpoint:
        """Append what ``rule`` returns for the endpoint as it is, None without one. It is asked
        again if the endpoint has changed meanwhile, and raises what speaks against it."""
        while True:
            before = self.find(name)
            events = rule(before)
            after = self.apply(name, before, events)
            if after is not None:
                return after

    def change(self, name: str, rule: Callable[[Endpoint], Sequence[Event]]) -> Endpoint:
        """As ``create``, for an endpoint that is there. Raises NotFound."""
        return self.create(name, lambda _: rule(self.get(name)))

    def apply(self, name: str, before: Endpoint | None, events: Sequence[Event]) -> Endpoint | None:
        """Append events that were decided from ``before``; the endpoint after them. Returns None if
        it has changed: decide again."""
        if not events:
            return before
        after = fold_all(before, events)
        self._rows()
        with self._lock:
            if self._latest is None or self._latest.get(name) != before:
                return None
            with self._engine.begin() as connection:
                if not _write(connection, before, after, events):
                    self._latest = None  # another server has changed it
                    return None
            self._latest[name] = after
            if after.is_gone:
                del self._latest[name]
        return after

    def events(self, name: str) -> builtins.list[StoredEvent]:
        """The newest events of an endpoint since it was created, in order. Raises NotFound."""
        self.get(name)
        query = select(_events).where(_events.c.endpoint == name).order_by(_events.c.id)
        with self._reading.connect() as connection:
            rows = [*connection.execute(query)]
        several = [
            StoredEvent(row.id, Event(Kind(row.kind), row.at, row.deployment, row.by, row.data))
            for row in rows
        ]
        created = (n for n, item in enumerate(several) if item.event.kind is Kind.CREATED)
        return several[max(created, default=0) :]

    def _rows(self) -> dict[str, Endpoint]:
        with self._lock:
            if self._latest is None:
                with self._reading.connect() as connection:
                    rows = [unpack(Endpoint, row.record) for row in connection.execute(_ALL)]
                self._latest = {row.name: row for row in rows}
            return dict(self._latest)


_ALL = select(_table.c.record)


def _write(
    connection: Connection, before: Endpoint | None, after: Endpoint, events: Sequence[Event]
) -> bool:
    """Whether the endpoint was as ``before``."""
    new = {"version": after.version, "record": pack(after)}
    if before is None:
        query = select(_table.c.name).where(_table.c.name == after.name)
        if connection.execute(query).first() is not None:
            return False
        connection.execute(insert(_table).values(name=after.name, **new))
    else:
        same = (_table.c.name == after.name, _table.c.version == before.version)
        if connection.execute(update(_table).where(*same).values(**new)).rowcount != 1:
            return False
    if after.is_gone:
        connection.execute(delete(_table).where(_table.c.name == after.name))
        return True
    connection.execute(insert(_events), [{**pack(item), "endpoint": after.name} for item in events])
    if after.version // 100 != (after.version - len(events)) // 100:
        _forget_oldest(connection, after.name)
    return True


def _forget_oldest(connection: Connection, name: str) -> None:
    mine = _events.c.endpoint == name
    query = select(_events.c.id).where(mine).order_by(_events.c.id.desc()).offset(KEPT_EVENTS)
    last = connection.execute(query.limit(1)).scalar()
    if last is not None:
        connection.execute(delete(_events).where(mine, _events.c.id <= last))
