"""Shared by the routes of versioned assets: data, environments and models."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from allranks.errors import Conflict, NotFound, SpecError, UsageError
from allranks.masking import all_without_credentials
from allranks.server.timestamps import iso_time
from allranks.spec.fields.azureml_references import Asset, asset_of
from allranks.store.assets import LATEST, AssetRow

if TYPE_CHECKING:
    from allranks.api.common import Document


def listed(rows: list[AssetRow], name: str | None) -> list[AssetRow]:
    """Every version of the named asset, or the newest version of each."""
    return rows if name is not None else list({row.name: row for row in rows}.values())


def shown(row: AssetRow, **more: Any) -> Document:
    """A version as the API and ``--json`` show it, without credentials: an `AssetVersion` with the
    keys of its definition."""
    return {
        **all_without_credentials(row.spec),
        "name": row.name,
        "version": row.version,
        "labels": list(row.labels),
        "created_at": iso_time(row.created_at) if row.created_at else None,
        **more,
    }


@contextmanager
def absent_is_not_found() -> Iterator[None]:
    """What a job that names it calls wrong is only not found when it is asked for."""
    try:
        yield
    except SpecError as error:
        raise NotFound(error.message, hint=error.hint) from None


def one_version(reference: str, kind: str) -> Asset:
    """The asset of a reference that names a version, else raise UsageError."""
    asset = asset_of(reference, kind)
    if not asset.version:
        hint = f"its versions: allranks {kind} list {asset.name}"
        raise UsageError("name the version to delete", where=reference, hint=hint)
    return asset


def refuse_reserved(name: str, version: str | None, *taken: str) -> None:
    """Raise Conflict for a name among ``taken``, or for the version `latest`."""
    if name in taken or version == LATEST:
        word = name if name in taken else LATEST
        raise Conflict(f"{word!r} is a reserved word", hint="choose another")
