"""Datastores and data assets, and the location that a path of an input or output means."""

from __future__ import annotations

import re
import secrets as chance
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks.core.data import addresses
from allranks.core.data.address_map import mapped
from allranks.core.data.addresses import Account, Address, Located, Store
from allranks.core.data.upload_manifest import STORED
from allranks.errors import NotFound, Problem, SpecError, UsageError
from allranks.server.assets.announced_uploads import AnnouncedUploads
from allranks.server.assets.model_versions import ModelVersions
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore
from allranks.spec.fields.azureml_references import Asset, asset_of
from allranks.spec.fields.problems import nearest
from allranks.store.assets import AssetRow, Assets, find_version
from allranks.store.key_values import Settings
from allranks.store.secrets import Secrets

KIND = "data"
_DATASTORES, _MAP, _CHOSEN = "datastores", "data.map", "datastores.default"
# The folders of uploads, by datastore.
_UPLOADS = "datastores.uploads"
# The built-in datastore, and Azure ML's names for its own, which mean the default one.
DEFAULT = "default"
_AZURES_OWN = ("workspaceblobstore", "workspacefilestore", "workspaceartifactstore")
_OF_DATASTORE = re.compile(
    r"azureml://(.+/)?datastores/(?P<name>[^/]+)(/paths(/(?P<path>.*))?)?/?", re.DOTALL
)
# The longest chain of data assets that refer to another.
_MOST_STEPS = 8


class Datastores:
    """The datastores and data assets of a home, and its models as inputs. ``folder`` is the
    built-in datastore. The other arguments are None if the home has no database yet."""

    def __init__(
        self,
        folder: Path,
        settings: Settings | None = None,
        assets: Assets | None = None,
        secrets: Secrets | None = None,
        models: ModelVersions | None = None,
    ) -> None:
        self._folder, self._models = folder, models
        self._settings, self._assets, self._secrets = settings, assets, secrets
        self.announced = AnnouncedUploads(settings)
        self._lock = threading.Lock()

    # ------------------------------------------------------------ datastores

    def all(self) -> dict[str, Datastore]:
        """All datastores by name, the built-in one first."""
        kept: Mapping[str, Any] = {}
        if self._settings is not None:
            kept = self._settings.get(_DATASTORES) or {}
        made = {name: Datastore.model_validate(each) for name, each in kept.items()}
        always = Datastore(name=DEFAULT, type="file", path=str(self._folder))
        return {DEFAULT: always, **made}

    def get(self, name: str) -> Datastore:
        """The datastore of that name. Raises NotFound."""
        datastores = self.all()
        if name in _AZURES_OWN and name not in datastores:
            return datastores[self.default()]
        if name not in datastores:
            has = f"available: {', '.join(datastores)}"
            create = f"{has}; create it: allranks datastore create {name} --type …"
            hint = nearest(name, datastores) or create
            raise NotFound(f"no datastore named {name!r}", hint=hint)
        return datastores[name]

    def default(self) -> str:
        """The name of the default datastore: the built-in one until another is chosen."""
        return (None if self._settings is None else self._settings.get(_CHOSEN)) or DEFAULT

    def pinned(self, path: str) -> str:
        """The path with the name of the default datastore in place of Azure ML's for it, so that
        it goes on to mean the same when another is chosen."""
        address = _OF_DATASTORE.fullmatch(path)
        if not address or address["name"] not in _AZURES_OWN or address["name"] in self.all():
            return path
        begin, end = address.span("name")
        return f"{path[:begin]}{self.default()}{path[end:]}"

    def set_default(self, name: str) -> None:
        assert self._settings is not None
        self._settings.set(_CHOSEN, name)

    def put(self, made: Datastore, credentials: Mapping[str, str] | None) -> None:
        """Store it, replacing the one of that name. None keeps the current credentials."""
        assert self._settings is not None
        assert self._secrets is not None
        if credentials is not None:
            self._secrets.put(made.name, credentials)
        kept = made.model_dump(mode="json", exclude_defaults=True)
        self._settings.change(_DATASTORES, {made.name: kept})

    def delete(self, name: str) -> None:
        """Delete the datastore and its credentials, not its data."""
        assert self._settings is not None
        assert self._secrets is not None
        self._settings.change(_DATASTORES, {name: None})
        self._secrets.put(name, {})

    def upload_folder(self, name: str) -> str:
        """The path of this home's uploads in a datastore, chosen once. Raises NotFound, UsageError
        for a datastore that is no object store."""
        assert self._settings is not None
        made = self.get(name)
        if made.type in ("file", "https"):
            hint = "name one of type s3, gcs or azure_blob: allranks datastore list"
            raise UsageError(f"the datastore {name!r} takes no uploads", hint=hint)
        with self._lock:
            folders = self._settings.get(_UPLOADS) or {}
            if made.name not in folders:
                folders[made.name] = f"{STORED}/{chance.token_hex(6)}"
                self._settings.change(_UPLOADS, {made.name: folders[made.name]})
        return str(folders[made.name])

    @staticmethod
    def leave_upload_folders(settings: Settings) -> None:
        """Choose new ones: another home may use those, and would not know what this one uses."""
        settings.set(_UPLOADS, {})

    def with_uploads(self) -> list[str]:
        """The names of the object stores in which uploads of this home may be."""
        assert self._settings is not None
        return [name for name in self._settings.get(_UPLOADS) or {} if name in self.all()]

    def opened_by(self, name: str) -> list[str]:
        """The names of the datastore's credentials."""
        return [] if self._secrets is None else self._secrets.names().get(name, [])

    def account(self, name: str) -> Account:
        """The address and credentials of a datastore. Raises NotFound."""
        assert self._secrets is not None
        return Account(start(self.get(name)).store, self._secrets.get(name))

    # ------------------------------------------------------------ data assets

    def versions(self, name: str) -> list[AssetRow]:
        """The versions of one data asset."""
        return [] if self._assets is None else self._assets.versions(name)

    def row(self, asset: Asset) -> AssetRow:
        """The version that ``asset`` names. Raises SpecError."""
        versions = self.versions(asset.name)
        if (row := find_version(versions, asset)) is not None:
            return row
        has = ", ".join(row.version for row in versions)
        hint = f"its versions: {has}"
        if not versions:
            names = [] if self._assets is None else [row.name for row in self._assets.versions()]
            create = f"create it: allranks data create {asset.name} --path PATH"
            hint = nearest(asset.name, names) or create
        raise SpecError(Problem(f"data asset {asset} not found", "path", hint=hint))

    # ------------------------------------------------------------ paths

    def map(self) -> dict[str, str]:
        """Prefixes of addresses, and the prefixes that replace them."""
        return {} if self._settings is None else dict(self._settings.get(_MAP) or {})

    def change_map(self, entries: Mapping[str, str | None]) -> None:
        assert self._settings is not None
        self._settings.change(_MAP, dict(entries))

    def locate(self, path: str, where: str, *, model: bool = False) -> Located:
        """The location of ``path``, which is absolute or a URI. Raises SpecError at key ``where``.

        A name is looked up among data assets, then models; with ``model`` the other way round.
        ``azureml://jobs/…`` is not handled here.
        """
        try:
            if model and (row := self._model(path, where)) is not None:
                return row
            return self._located(path, where, Located(), _MOST_STEPS)
        except (UsageError, NotFound) as error:
            raise SpecError(Problem(error.message, where, hint=error.hint)) from None

    def _located(self, address: str, where: str, so_far: Located, steps: int) -> Located:
        path = mapped(address, self.map())
        if path.startswith("/"):
            return so_far._replace(path=path)
        if path.startswith("file:"):
            return so_far._replace(path="/" + path.removeprefix("file:").lstrip("/"))
        if of := _OF_DATASTORE.fullmatch(path):
            store = self.get(of["name"])
            if store.type == "file":
                return so_far._replace(path=_below(store.path or "/", of["path"] or ""))
            place = addresses.within(start(store), of["path"] or "")
            return so_far._replace(uri=str(place), datastore=store.name)
        if path.startswith("azureml:") and not path.startswith("azureml://"):
            return self._of_asset(asset_of(path, where), where, so_far, steps)
        place = addresses.address(path)
        return so_far._replace(uri=str(place), datastore=self._opener(place))

    def _model(self, path: str, where: str) -> Located | None:
        """The location of the model that ``path`` names, or None."""
        if self._models is None or not path.startswith("azureml:") or "://" in path:
            return None
        asset = asset_of(path, where)
        if not self._models.assets.versions(asset.name):
            return None
        row = self._models.row(asset)
        return Located(str(self._models.place(row)), asset=f"{row.name}:{row.version}")

    def _of_asset(self, asset: Asset, where: str, so_far: Located, steps: int) -> Located:
        if not self.versions(asset.name) and (model := self._model(f"azureml:{asset}", where)):
            return model._replace(asset=so_far.asset or model.asset)
        row = self.row(asset)
        if steps == 0:
            raise UsageError(
                f"the data asset {asset} refers to itself", hint="give the path of its data"
            )
        data = Data.model_validate({**row.spec, "name": row.name, "version": row.version})
        located = so_far if so_far.asset else Located(asset=f"{row.name}:{row.version}")
        return self._located(data.path, where, located, steps - 1)

    def _opener(self, place: Address) -> str:
        """The name of the innermost datastore that holds the place, else one of the same bucket;
        empty: none."""
        starts = {store.name: start(store) for store in self.all().values() if store.type != "file"}
        bucket = place._replace(key="")
        fit = [n for n, each in starts.items() if addresses.covers(bucket, each)]
        inside = [name for name in fit if addresses.covers(starts[name], place)]
        return max(inside or fit[:1], key=lambda name: len(starts[name].key), default="")


def start(made: Datastore) -> Address:
    """The address of a datastore that is not of type `file`."""
    prefix = made.prefix or ""
    if made.type == "https":
        return addresses.address(made.url or "")
    if made.type.startswith("azure"):
        account, container = made.account_name or "", made.container_name or made.filesystem or ""
        endpoint = made.endpoint or ""
        if endpoint and "://" not in endpoint:
            # Azure ML gives the suffix of the cloud only: core.windows.net.
            endpoint = f"{made.protocol or 'https'}://{account}.blob.{endpoint}"
        store = Store("azure", container, account, endpoint)
    else:
        store = Store(made.type, made.bucket or "", "", made.endpoint or "", made.region or "")
    return addresses.within(Address(store), prefix)


def _below(folder: str, path: str) -> str:
    steps = [step for step in path.split("/") if step not in ("", ".")]
    if ".." in steps:
        raise UsageError(f"{path!r} is outside of its datastore", hint="use a path without `..`")
    return "/".join((folder.rstrip("/"), *steps)) or "/"
