"""Data with names and versions, and the datastores it lies in, for Python programs."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path, version_path, versions_path
from allranks.sdk.submit.submission import placed_data
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore

_DATA, _DATASTORES = "/api/v1/data", "/api/v1/datastores"
# What the server tells beside the thing itself.
_TOLD = ("labels", "created_at", "uri", "credentials", "created")


class DataAssets:
    """The operations on data assets; all raise AllranksError, with a hint."""

    def create_or_update(self, data: Data, *, base: str | Path | None = None) -> Data:
        """Add a version, the next number unless it has one; the very same one twice is one. A
        relative path begins at ``base`` (the current folder); the data stays where it lies."""
        given = data.model_dump(mode="json", exclude_unset=True)
        return _data(
            find_server.ask("POST", _DATA, placed_data(given, Path(base or ".").absolute()))
        )

    def get(self, name: str, version: str | None = None, label: str = "latest") -> Data:
        """A version, or the one that has the label."""
        return _data(find_server.ask("GET", version_path("data", name, version, label)))

    def list(self, name: str | None = None) -> builtins.list[Data]:
        """The newest version of each, or all versions of one."""
        return [_data(each) for each in find_server.ask("GET", versions_path("data", name))]


class Datastores:
    """The operations on datastores; all raise AllranksError, with a hint."""

    def create_or_update(
        self, datastore: Datastore, credentials: Mapping[str, str] | None = None
    ) -> Datastore:
        """Add one, or change the one of that name. Its credentials are kept by the server and never
        told again; without any, nodes use what they have of their own."""
        given = datastore.model_dump(mode="json", exclude_unset=True)
        sent = {**given, "credentials": dict(credentials or {}) or None}
        return _datastore(find_server.ask("POST", f"{_DATASTORES}?replace=true", sent))

    def get(self, name: str) -> Datastore:
        return _datastore(find_server.ask("GET", asset_path("datastores", name)))

    def list(self) -> builtins.list[Datastore]:
        return [_datastore(each) for each in find_server.ask("GET", _DATASTORES)]

    def delete(self, name: str) -> None:
        """Forget it and its credentials; what is in it stays."""
        find_server.ask("DELETE", asset_path("datastores", name))


def _data(told: dict[str, Any]) -> Data:
    return Data.model_validate({k: v for k, v in told.items() if k not in _TOLD})


def _datastore(told: dict[str, Any]) -> Datastore:
    return Datastore.model_validate({k: v for k, v in told.items() if k not in _TOLD})
