"""Routes for datastores, and for the data assets in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from allranks.api.assets import CreatedData, DataAnswer, DatastoreAnswer, UploadFolder
from allranks.api.common import Document
from allranks.core.data import addresses
from allranks.core.data.addresses import Store
from allranks.core.data.upload_manifest import is_digest
from allranks.errors import Conflict, UsageError
from allranks.server.assets import datastores
from allranks.server.assets.datastores import DEFAULT
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.assets.versions import (
    absent_is_not_found,
    listed,
    one_version,
    refuse_reserved,
    shown,
)
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.spec import data as data_spec
from allranks.spec import datastore as datastore_spec
from allranks.spec.data import Data
from allranks.spec.datastore import Datastore
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.assets import AssetRow

# ---------------------------------------------------------------- datastores


def list_datastores(services: ServicesDep) -> list[DatastoreAnswer]:
    """All datastores, the built-in one first."""
    return [_datastore(each, services) for each in services.datastores.all().values()]


def create_datastore(
    data: JsonBody, services: ServicesDep, replace: bool = False
) -> DatastoreAnswer:
    """Create or ``replace`` a datastore. Its credentials are stored as secrets and never shown."""
    made, credentials = datastore_spec.parse(data)
    if made.name == DEFAULT:
        raise Conflict(f"the datastore {DEFAULT!r} is built in", hint="choose another name")
    if made.type != "file":
        datastores.start(made)  # raises UsageError for an invalid address
    before = services.datastores.all().get(made.name)
    if before is not None and not replace:
        hint = f"use --replace, or delete it: allranks datastore delete {made.name}"
        raise Conflict(f"the datastore {made.name!r} exists already", hint=hint)
    kept = [] if credentials is not None else services.datastores.opened_by(made.name)
    if before is not None and kept and _credential_scope(before) != _credential_scope(made):
        # Otherwise the stored credentials would be sent to another server.
        raise UsageError(
            f"the stored credentials of {made.name!r} belong to another server",
            where=made.name,
            hint="give the same address (including --endpoint), or new ones: --credentials FILE",
        )
    services.datastores.put(made, credentials)
    return _datastore(made, services)


def show_datastore(name: str, services: ServicesDep) -> DatastoreAnswer:
    return _datastore(services.datastores.get(name), services)


def delete_datastore(name: str, services: ServicesDep) -> DatastoreAnswer:
    """Delete a datastore and its credentials, not its data."""
    if name == DEFAULT:
        raise Conflict(f"the datastore {DEFAULT!r} is built in", hint="it needs no deletion")
    datastore = services.datastores.get(name)
    if datastore.name != name:
        message = f"{name!r} means the built-in datastore {datastore.name!r}"
        raise Conflict(message, hint="name one that you created: allranks datastore list")
    if name == services.datastores.default():
        hint = f"choose another one first: allranks datastore set-default {DEFAULT}"
        raise Conflict(f"{name!r} is the default datastore", hint=hint)
    shown = _datastore(datastore, services)
    services.datastores.delete(name)
    return shown


def set_default_datastore(name: str, services: ServicesDep) -> DatastoreAnswer:
    """Choose the default datastore: where uploads go, and what Azure ML's default names mean."""
    datastore = services.datastores.get(name)
    if datastore.type == "https":
        hint = "choose one of another type"
        raise UsageError(f"nothing can be written to the datastore {name!r}", hint=hint)
    services.datastores.set_default(datastore.name)
    return _datastore(datastore, services)


def receive_uploads(name: str, services: ServicesDep, digest: str = "") -> UploadFolder:
    """Where clients with credentials of their own put uploads into an object store. Garbage
    collection looks there from now on, and keeps the upload ``digest`` for a day."""
    folder = services.datastores.upload_folder(name)
    if digest:
        if not is_digest(digest):
            raise UsageError("not the SHA-256 of a manifest", where="digest", hint="see `uploads`")
        services.datastores.announced.announce(digest)
    return {"folder": folder}


def _credential_scope(made: Datastore) -> Store | None:
    """The server that receives the credentials, whatever the bucket."""
    if made.type == "file":
        return None
    return datastores.start(made).store._replace(bucket="", region="")


def _datastore(made: Datastore, services: Services) -> DatastoreAnswer:
    """``uri`` is the root of the datastore, ``credentials`` only their names."""
    uri = made.path or "" if made.type == "file" else str(datastores.start(made))
    shown = {
        **made.model_dump(mode="json", exclude_defaults=True),
        "uri": uri,
        "credentials": services.datastores.opened_by(made.name),
        "default": made.name == services.datastores.default(),
    }
    return cast("DatastoreAnswer", shown)


# ---------------------------------------------------------------- data assets


def list_data(services: ServicesDep, name: str | None = None) -> list[DataAnswer]:
    """Every version of one asset, or the newest of each."""
    return [_data(row) for row in listed(services.data.versions(name), name)]


def create_data(data: JsonBody, services: ServicesDep, labels: Labels) -> CreatedData:
    """Create a version with labels; ``created`` is false if it existed. Checks now that the path is
    valid; that data exists there is checked by jobs."""
    made = _valid(data, services)
    spec = made.model_dump(mode="json", exclude_defaults=True, exclude={"name", "version"})
    with services.admission_lock:
        services.uploads.require(made.path)
        row = services.data.create(made.name, made.version, spec)
    return {**_labelled(row, labels, services), "created": row.new}


def check_data(data: JsonBody, services: ServicesDep) -> None:
    """Check a version as creating it would, before its data is uploaded."""
    _valid(data, services)


def _valid(data: Document, services: Services) -> Data:
    made = data_spec.parse(data)
    refuse_reserved(made.name, made.version, "map")
    made = made.model_copy(update={"path": services.datastores.pinned(made.path)})
    services.datastores.locate(made.path, "path")
    return made


def show_map(services: ServicesDep) -> dict[str, str]:
    """Prefixes of addresses, and the prefixes that replace them."""
    return services.datastores.map()


def change_map(data: JsonBody, services: ServicesDep) -> None:
    """Set replacements of address prefixes; null removes one."""
    for prefix, replacement in data.items():
        if not prefix.strip() or (":" not in prefix and not prefix.startswith("/")):
            hint = "such as s3://old-bucket/ or azureml://datastores/old/paths/"
            raise UsageError(f"{prefix!r} is not a prefix of an address", hint=hint)
        if replacement and not str(replacement).startswith(("/", "azureml:")):
            addresses.address(str(replacement))
    services.datastores.change_map({k: str(v) if v else None for k, v in data.items()})


def show_data(reference: str, services: ServicesDep) -> DataAnswer:
    asset = asset_of(reference, "data")
    with absent_is_not_found():
        return _data(services.datastores.row(asset))


def delete_data(reference: str, services: ServicesDep) -> DataAnswer:
    """Delete a version; the data itself stays."""
    row = services.datastores.row(one_version(reference, "data"))
    services.data.delete(row.name, row.version)
    return _data(row)


def label_data(reference: str, data: JsonBody, services: ServicesDep) -> DataAnswer:
    """Add labels; each moves from the version that had it."""
    return _labelled(
        services.datastores.row(asset_of(reference, "data")), labels_of(data), services
    )


def _labelled(row: AssetRow, labels: Sequence[str], services: Services) -> DataAnswer:
    services.data.label(row.name, row.version, labels)
    return _data(services.datastores.row(asset_of(f"{row.name}:{row.version}", "data")))


def _data(row: AssetRow) -> DataAnswer:
    return cast("DataAnswer", {"type": "uri_folder", **shown(row)})
