"""Batch endpoints and their deployments."""

from __future__ import annotations

import builtins
import threading
from collections.abc import Mapping
from typing import Any, NamedTuple

from allranks.errors import NotFound
from allranks.store.key_values import Settings

_KEY = "batch_endpoints"


class BatchDeploymentRow(NamedTuple):
    """``component`` is the pipeline component of its jobs, ``submitter`` its creator's `base`
    and `tools` as in a submission, for those that are invoked over HTTP. Times in seconds since the
    epoch."""

    name: str
    spec: dict[str, Any]
    component: dict[str, Any]
    created_at: float
    created_by: str
    submitter: Mapping[str, Any] = {}


class BatchEndpointRow(NamedTuple):
    name: str
    spec: dict[str, Any]
    deployments: Mapping[str, BatchDeploymentRow]
    created_at: float
    created_by: str


class BatchEndpoints:
    """The batch endpoints of a home. Thread-safe; who writes what depends on what it has read holds
    ``lock``."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.lock = threading.RLock()

    def list(self) -> builtins.list[BatchEndpointRow]:
        """All by name."""
        several = self._settings.get(_KEY) or {}
        return [_row(several[name]) for name in sorted(several)]

    def find(self, name: str) -> BatchEndpointRow | None:
        data = (self._settings.get(_KEY) or {}).get(name)
        return None if data is None else _row(data)

    def get(self, name: str) -> BatchEndpointRow:
        """Raises NotFound."""
        if (row := self.find(name)) is None:
            raise NotFound(f"batch endpoint {name!r} not found", hint="allranks endpoint list")
        return row

    def put(self, row: BatchEndpointRow) -> None:
        deployments = {name: [*item] for name, item in row.deployments.items()}
        self._settings.change(_KEY, {row.name: {**row._asdict(), "deployments": deployments}})

    def delete(self, name: str) -> None:
        self._settings.change(_KEY, {name: None})

    def components(self) -> builtins.list[Any]:
        """Those of all deployments."""
        return [item.component for row in self.list() for item in row.deployments.values()]


def _row(data: Mapping[str, Any]) -> BatchEndpointRow:
    several = {name: BatchDeploymentRow(*item) for name, item in data["deployments"].items()}
    return BatchEndpointRow(**{**data, "deployments": several})
