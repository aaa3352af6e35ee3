"""What routes of things that have a name and versions say of them: data, environments, models."""

from __future__ import annotations

from typing import Any

from allranks.errors import Conflict, UsageError
from allranks.masking import all_without_credentials
from allranks.server.timestamps import when
from allranks.spec.fields.azureml_references import Asset, asset_of
from allranks.store.assets import LATEST, AssetRow


def listed(rows: list[AssetRow], name: str | None) -> list[AssetRow]:
    """Every version of the one that was named, or the newest of each."""
    return rows if name is not None else list({row.name: row for row in rows}.values())


def shown(row: AssetRow, **more: Any) -> dict[str, Any]:
    """A version as the API and ``--json`` show it."""
    return {
        **all_without_credentials(row.spec),
        "name": row.name,
        "version": row.version,
        "labels": list(row.labels),
        "created_at": when(row.created_at) if row.created_at else None,
        **more,
    }


def one_version(reference: str, kind: str) -> Asset:
    """A reference to what is to be deleted. Raises UsageError where it names no version."""
    asset = asset_of(reference, kind)
    if not asset.version:
        hint = f"its versions: allranks {kind} list {asset.name}"
        raise UsageError("which version is to be deleted?", where=reference, hint=hint)
    return asset


def refuse_words(name: str, version: str | None, *taken: str) -> None:
    """Raises Conflict for a name of these, or a version that is a label."""
    if name in taken or version == LATEST:
        word = name if name in taken else LATEST
        raise Conflict(f"{word!r} has a meaning of its own", hint="choose another")
