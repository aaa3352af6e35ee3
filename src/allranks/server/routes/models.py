"""Routes for models: versions of them, labels, and their manifests; their files are told of with
those of jobs."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends, Response

from allranks.errors import UsageError
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.assets.versions import listed, one_version, refuse_words, shown
from allranks.server.dependencies import Services, services
from allranks.spec.fields.azureml_references import asset_of
from allranks.spec.model import parse
from allranks.store.assets import AssetRow
from allranks.store.files.trees import Entry

With = Annotated[Services, Depends(services)]
Data = Annotated[dict[str, Any], Body()]
_DIGEST = re.compile(r"[0-9a-f]{64}")
router = APIRouter(prefix="/api/v1/models")


@router.get("")
def list_models(with_: With, name: str | None = None) -> list[dict[str, Any]]:
    """Every version of one, or the newest of each."""
    return [shown(row) for row in listed(with_.models.versions.assets.versions(name), name)]


@router.post("", status_code=201)
def register(data: Data, with_: With, labels: Labels) -> dict[str, Any]:
    """Add a version, with labels: of what a job left, or of ``files`` that were sent as blobs, each
    {"path", "size", "sha256"}; 404 missing_code as long as they were not. "created" unless it was
    there."""
    files = data.pop("files", None)
    made = parse(data)
    refuse_words(made.name, made.version)
    row = with_.models.register(made, None if files is None else _entries(files))
    return {**_labelled(row, labels, with_), "created": row.new}


@router.get("/{reference}")
def show(reference: str, with_: With) -> dict[str, Any]:
    return shown(_row(reference, with_))


@router.delete("/{reference}")
def delete(reference: str, with_: With) -> dict[str, Any]:
    """Forget a version; its files go with the next clearing, unless another has the same."""
    one_version(reference, "model")
    row = _row(reference, with_)
    with_.models.versions.assets.delete(row.name, row.version)
    return shown(row)


@router.put("/{reference}/labels")
def label(reference: str, data: Data, with_: With) -> dict[str, Any]:
    """Give it labels; each is taken from the version that had it."""
    return _labelled(_row(reference, with_), labels_of(data), with_)


@router.get("/{reference}/manifest")
def manifest(reference: str, with_: With) -> Response:
    """Every file as it was registered; ``mtime_ns`` as it lies here, 0 where it is gone."""
    versions = with_.models.versions
    row = _row(reference, with_)
    folder = versions.files(row)
    found = []
    for each in versions.manifest(row):
        try:
            mtime_ns = (folder / each.path).stat().st_mtime_ns
        except OSError:
            mtime_ns = 0
        found.append({**each._asdict(), "mtime_ns": mtime_ns})
    # By hand: a name that is not UTF-8 is written as the escapes that make it whole again.
    return Response(json.dumps(found), media_type="application/json")


def _row(reference: str, with_: Services) -> AssetRow:
    return with_.models.versions.row(asset_of(reference, "model"))


def _labelled(row: AssetRow, labels: Sequence[str], with_: Services) -> dict[str, Any]:
    with_.models.versions.assets.label(row.name, row.version, labels)
    return show(f"{row.name}:{row.version}", with_)


def _entries(files: Any) -> list[Entry]:
    """The files of a model as they are sent. Raises UsageError for what can be none."""
    told = [each for each in files if _is_entry(each)] if isinstance(files, list) else []
    found = {each["path"]: Entry(**each) for each in told}
    folders = {path[: slash.start()] for path in found for slash in re.finditer("/", path)}
    if not found or len(found) < len(files) or folders & found.keys():
        hint = 'a list of {"path", "size", "sha256"}, each path once and below the model'
        raise UsageError("these are no files of a model", where="files", hint=hint)
    return [*found.values()]


def _is_entry(each: Any) -> bool:
    if not isinstance(each, dict) or each.keys() != {*Entry._fields}:
        return False
    path, size, sha256 = (each[key] for key in Entry._fields)
    plain = isinstance(path, str) and "\0" not in path and isinstance(size, int)
    inside = plain and not any(step in ("", ".", "..") for step in path.split("/"))
    return inside and _DIGEST.fullmatch(str(sha256)) is not None
