"""Routes for models: versions, labels and manifests. `job_files` has the routes for their files."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Annotated, Any, cast

from starlette.responses import Response

from allranks.api.assets import CreatedModel, ModelAnswer, ModelFile
from allranks.api.jobs import LinkAnswer
from allranks.errors import Conflict, UsageError
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.assets.versions import listed, one_version, refuse_reserved, shown
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.http.content import Content
from allranks.spec.fields.azureml_references import asset_of
from allranks.spec.model import parse
from allranks.store.assets import AssetRow
from allranks.store.files.trees import Entry, leads_to

_DIGEST = re.compile(r"[0-9a-f]{64}")


def list_models(services: ServicesDep, name: str | None = None) -> list[ModelAnswer]:
    """Every version of one model, or the newest of each."""
    return [_shown(row) for row in listed(services.models.versions.assets.versions(name), name)]


def register(data: JsonBody, services: ServicesDep, labels: Labels) -> CreatedModel:
    """Create a version with labels, from files of a job or from ``files`` uploaded as blobs, each
    {"path", "size", "sha256"}; 404 missing_code if blobs are missing. ``created`` is false if the
    version existed."""
    files = data.pop("files", None)
    made = parse(data)
    refuse_reserved(made.name, made.version)
    row = services.models.register(made, None if files is None else _entries(files))
    return {**_labelled(row, labels, services), "created": row.new}


def show(reference: str, services: ServicesDep) -> ModelAnswer:
    row = _row(reference, services)
    answer = _shown(row)
    if deployments := _online_users(row, services):
        answer["deployments"] = deployments
    return answer


def delete(reference: str, services: ServicesDep) -> ModelAnswer:
    """Delete a version. `gc` deletes its files, unless another version has the same. Raises
    Conflict while a deployment answers with it."""
    one_version(reference, "model")
    with services.admission_lock:
        row = _row(reference, services)
        _require_unused(row, services)
        services.models.versions.assets.delete(row.name, row.version)
    return _shown(row)


def label(reference: str, data: JsonBody, services: ServicesDep) -> ModelAnswer:
    """Add labels; each moves from the version that had it."""
    return _labelled(_row(reference, services), labels_of(data), services)


def manifest(
    reference: str, services: ServicesDep, links: bool = False
) -> Annotated[Response, Content(list[ModelFile] | list[LinkAnswer])]:
    """Every registered file, also for links to files; ``mtime_ns`` is that of the stored file, 0 if
    it is missing. Or all ``links``."""
    versions = services.models.versions
    row = _row(reference, services)
    folder = versions.files(row)
    files: list[ModelFile] = []
    entries = {entry.path: entry for entry in versions.manifest(row)}
    if links:
        texts = [{"path": e.path, "target": e.target} for e in entries.values() if e.target]
        return Response(json.dumps(texts), media_type="application/json")
    for path in entries:
        if not (file := leads_to(path, entries)):
            continue
        entry = entries[file]._replace(path=path)
        try:
            mtime_ns = (folder / entry.path).stat().st_mtime_ns
        except OSError:
            mtime_ns = 0
        files.append(
            {"path": entry.path, "size": entry.size, "sha256": entry.sha256, "mtime_ns": mtime_ns}
        )
    # Not JSONResponse: json.dumps escapes names that are not UTF-8 without loss.
    return Response(json.dumps(files), media_type="application/json")


def _row(reference: str, services: Services) -> AssetRow:
    return services.models.versions.row(asset_of(reference, "model"))


def _require_unused(row: AssetRow, services: Services) -> None:
    if users := [*_online_users(row, services), *_batch_users(row, services)]:
        endpoint, _, name = users[0].partition("/")
        hint = f"allranks deployment delete {name} -e {endpoint}, or its endpoint"
        message = f"the deployment {users[0]} uses {row.name}:{row.version}"
        raise Conflict(message, hint=hint)


def _online_users(row: AssetRow, services: Services) -> list[str]:
    """The online deployments that have the version or answer with it, as `ENDPOINT/NAME`."""
    reference = f"azureml:{row.name}:{row.version}"
    rows = services.endpoints.deployments()
    return [item.key for item in rows if not item.is_deleted and reference in item.models_in_use()]


def _batch_users(row: AssetRow, services: Services) -> list[str]:
    """The batch deployments of the version, as `ENDPOINT/NAME`."""
    reference = f"azureml:{row.name}:{row.version}"
    return [
        f"{endpoint.name}/{item.name}"
        for endpoint in services.batch.list()
        for item in endpoint.deployments.values()
        if item.spec.get("model") == reference
    ]


def _labelled(row: AssetRow, labels: Sequence[str], services: Services) -> ModelAnswer:
    services.models.versions.assets.label(row.name, row.version, labels)
    return show(f"{row.name}:{row.version}", services)


def _entries(files: Any) -> list[Entry]:
    """The uploaded files of a model. Raises UsageError for malformed entries."""
    valid = [file for file in files if _is_entry(file)] if isinstance(files, list) else []
    entries = {each["path"]: Entry(**each) for each in valid}
    folders = {path[: slash.start()] for path in entries for slash in re.finditer("/", path)}
    if not entries or len(entries) < len(files) or folders & entries.keys():
        hint = 'give a list of {"path", "size", "sha256"} with distinct relative paths'
        raise UsageError("malformed list of files", where="files", hint=hint)
    return [*entries.values()]


def _is_entry(each: Any) -> bool:
    if not isinstance(each, dict) or each.keys() - {"target"} != {"path", "size", "sha256"}:
        return False
    path, size, sha256, target = (each.get(key, "") for key in Entry._fields)
    plain = isinstance(path, str) and "\0" not in path and isinstance(size, int)
    inside = plain and not any(step in ("", ".", "..") for step in path.split("/"))
    is_link = isinstance(target, str) and target and (size, sha256) == (0, "")
    return inside and bool(is_link or (not target and _DIGEST.fullmatch(str(sha256))))


def _shown(row: AssetRow) -> ModelAnswer:
    return cast("ModelAnswer", shown(row))
