"""Data assets and datastores, for Python programs."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.sdk.connection import find_server
from allranks.sdk.connection.references import reference
from allranks.sdk.submit.data import When, create_data
from allranks.sdk.transfer.download import download_data
from allranks.sdk.upload.inputs import How
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore

if TYPE_CHECKING:
    from allranks.api.assets import DataAnswer, DatastoreAnswer

# Keys that the server adds.
_SERVER_KEYS = ("labels", "created_at", "uri", "credentials", "created", "default")


class DataAssets:
    """Operations on data assets. All raise AllranksError with a hint."""

    def create_or_update(
        self,
        data: Data,
        *,
        base: str | Path | None = None,
        upload: bool | None = None,
        allow_large_data: bool = False,
    ) -> Data:
        """Create a version; its number is the next one if not set. Creating the same version again
        changes nothing. A relative path starts at ``base`` (the current folder). Local data is
        uploaded if the server cannot see it; with ``upload`` always or never. Raises DataTooLarge
        above 2 GB unless ``allow_large_data``."""
        when = When.UNSEEN if upload is None else When.ALWAYS if upload else When.NEVER
        body = data.model_dump(mode="json", exclude_unset=True)
        where = Path(base or ".").absolute()
        return _data(create_data(body, where, how=How(allow_large_data), when=when))

    def download(
        self,
        name: str,
        version: str | None = None,
        download_path: str | Path = ".",
        *,
        label: str = "latest",
    ) -> Path:
        """Download it into a folder of its name in ``download_path``; returns the folder. Existing
        files are not downloaded again."""
        which = reference(name, version, label)
        download_data(find_server.connect, which, Path(download_path))
        return Path(download_path, name)

    def get(self, name: str, version: str | None = None, label: str = "latest") -> Data:
        """A version, by number or label."""
        return _data(find_server.ask(routes.show_data, reference(name, version, label)))

    def list(self, name: str | None = None) -> builtins.list[Data]:
        """The newest version of every asset, or all versions of one."""
        return [_data(each) for each in find_server.ask(routes.list_data, name=name)]


class Datastores:
    """Operations on datastores. All raise AllranksError with a hint."""

    def create_or_update(
        self, datastore: Datastore, credentials: Mapping[str, str] | None = None
    ) -> Datastore:
        """Create or change a datastore. The server stores its credentials and never returns them;
        without credentials, nodes use their own."""
        body = datastore.model_dump(mode="json", exclude_unset=True)
        sent = {**body, "credentials": dict(credentials or {}) or None}
        return _datastore(find_server.ask(routes.create_datastore, body=sent, replace=True))

    def get(self, name: str) -> Datastore:
        return _datastore(find_server.ask(routes.show_datastore, name))

    def list(self) -> builtins.list[Datastore]:
        return [_datastore(each) for each in find_server.ask(routes.list_datastores)]

    def get_default(self) -> Datastore:
        """The one to which uploads go."""
        answers = find_server.ask(routes.list_datastores)
        return next(_datastore(store) for store in answers if store["default"])

    def set_default(self, name: str) -> Datastore:
        """Choose the default one; `default` is the server's own store."""
        return _datastore(find_server.ask(routes.set_default_datastore, name))

    def delete(self, name: str) -> None:
        """Remove it and its credentials. The data is kept."""
        find_server.ask(routes.delete_datastore, name)


def _data(answer: DataAnswer) -> Data:
    return Data.model_validate({k: v for k, v in answer.items() if k not in _SERVER_KEYS})


def _datastore(answer: DatastoreAnswer) -> Datastore:
    return Datastore.model_validate({k: v for k, v in answer.items() if k not in _SERVER_KEYS})
