"""Routes for datastores, and for the data assets in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from allranks.errors import Conflict, UsageError
from allranks.plan.data import addresses
from allranks.plan.data.addresses import Store
from allranks.server.assets import datastores
from allranks.server.assets.datastores import DEFAULT
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.assets.versions import listed, one_version, refuse_words, shown
from allranks.server.dependencies import Services, services
from allranks.spec import data as data_spec
from allranks.spec import datastore as datastore_spec
from allranks.spec.datastore import Datastore
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.assets import AssetRow

With = Annotated[Services, Depends(services)]
Data = Annotated[dict[str, Any], Body()]
router = APIRouter(prefix="/api/v1")

# ---------------------------------------------------------------- datastores


@router.get("/datastores")
def list_datastores(with_: With) -> list[dict[str, Any]]:
    """The one that is always there first."""
    return [_datastore(each, with_) for each in with_.datastores.all().values()]


@router.post("/datastores", status_code=201)
def create_datastore(data: Data, with_: With, replace: bool = False) -> dict[str, Any]:
    """Add one, or ``replace`` one; its credentials go to the home's secrets and are never shown."""
    made, credentials = datastore_spec.parse(data)
    if made.name == DEFAULT:
        raise Conflict(f"the datastore {DEFAULT!r} is always there", hint="give it another name")
    if made.type != "file":
        datastores.start(made)  # raises for what is no address
    before = with_.datastores.all().get(made.name)
    if before is not None and not replace:
        hint = f"forget it first: allranks datastore delete {made.name}; or give --replace"
        raise Conflict(f"there is a datastore {made.name!r} already", hint=hint)
    kept = [] if credentials is not None else with_.datastores.opened_by(made.name)
    if before is not None and kept and _who_asks(before) != _who_asks(made):
        # Else they would be shown to somebody they were not meant for.
        raise UsageError(
            f"the credentials of {made.name!r} are for another place than that",
            where=made.name,
            hint="say where it is in full (--endpoint, too), or give others: --credentials FILE",
        )
    with_.datastores.put(made, credentials)
    return _datastore(made, with_)


@router.get("/datastores/{name}")
def show_datastore(name: str, with_: With) -> dict[str, Any]:
    return _datastore(with_.datastores.get(name), with_)


@router.delete("/datastores/{name}")
def delete_datastore(name: str, with_: With) -> dict[str, Any]:
    """Forget it and its credentials; what is in it stays."""
    if name == DEFAULT:
        raise Conflict(f"the datastore {DEFAULT!r} is always there", hint="nothing has to be done")
    found = with_.datastores.get(name)
    if found.name != name:
        raise Conflict(f"{name!r} is another word for {found.name!r}, which is always there")
    shown = _datastore(found, with_)
    with_.datastores.delete(name)
    return shown


def _who_asks(made: Datastore) -> Store | None:
    """Who is shown the credentials: whatever the bucket, the same."""
    return (
        None if made.type == "file" else datastores.start(made).store._replace(bucket="", region="")
    )


def _datastore(made: Datastore, with_: Services) -> dict[str, Any]:
    """``uri`` is where it begins, ``credentials`` only the names of them."""
    uri = made.path or "" if made.type == "file" else str(datastores.start(made))
    return {
        **made.model_dump(mode="json", exclude_defaults=True),
        "uri": uri,
        "credentials": with_.datastores.opened_by(made.name),
    }


# ---------------------------------------------------------------- data assets


@router.get("/data")
def list_data(with_: With, name: str | None = None) -> list[dict[str, Any]]:
    """Every version of one, or the newest of each."""
    return [_data(row) for row in listed(with_.data.versions(name), name)]


@router.post("/data", status_code=201)
def create_data(data: Data, with_: With, labels: Labels) -> dict[str, Any]:
    """Add a version, with labels; "created" unless it was there. What its path means is looked up
    now; whether anything is there, when a job asks for it."""
    made = data_spec.parse(data)
    refuse_words(made.name, made.version, "map")
    with_.datastores.locate(made.path, "path")
    spec = made.model_dump(mode="json", exclude_defaults=True, exclude={"name", "version"})
    row = with_.data.create(made.name, made.version, spec)
    return {**_labelled(row, labels, with_), "created": row.new}


@router.get("/data/map")
def show_map(with_: With) -> dict[str, str]:
    """What beginnings of addresses are taken for others."""
    return with_.datastores.map()


@router.put("/data/map", status_code=204)
def change_map(data: Data, with_: With) -> None:
    """Say what a beginning is to be taken for; null: no longer."""
    for asked, taken in data.items():
        if not asked.strip() or (":" not in asked and not asked.startswith("/")):
            hint = "as in s3://old-bucket/ or azureml://datastores/old/paths/"
            raise UsageError(f"{asked!r} is no beginning of an address", hint=hint)
        if taken and not str(taken).startswith(("/", "azureml:")):
            addresses.address(str(taken))
    with_.datastores.change_map({k: str(v) if v else None for k, v in data.items()})


@router.get("/data/{reference}")
def show_data(reference: str, with_: With) -> dict[str, Any]:
    return _data(with_.datastores.row(asset_of(reference, "data")))


@router.delete("/data/{reference}")
def delete_data(reference: str, with_: With) -> dict[str, Any]:
    """Forget a version; the data itself stays where it lies."""
    row = with_.datastores.row(one_version(reference, "data"))
    with_.data.delete(row.name, row.version)
    return _data(row)


@router.put("/data/{reference}/labels")
def label_data(reference: str, data: Data, with_: With) -> dict[str, Any]:
    """Give it labels; each is taken from the version that had it."""
    return _labelled(with_.datastores.row(asset_of(reference, "data")), labels_of(data), with_)


def _labelled(row: AssetRow, labels: Sequence[str], with_: Services) -> dict[str, Any]:
    with_.data.label(row.name, row.version, labels)
    return _data(with_.datastores.row(asset_of(f"{row.name}:{row.version}", "data")))


def _data(row: AssetRow) -> dict[str, Any]:
    return {"type": "uri_folder", **shown(row)}
