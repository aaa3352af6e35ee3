"""Routes for components: versions and labels."""

from __future__ import annotations

from typing import cast

from allranks.api.assets import ComponentAnswer, CreatedComponent
from allranks.errors import MissingCode, Problem, SpecError
from allranks.server.assets import versions
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.spec.fields.azureml_references import asset_of
from allranks.spec.pipeline.component import parse_component
from allranks.store.assets import AssetRow
from allranks.store.jobs.job_rows import snapshots


def list_components(services: ServicesDep, name: str | None = None) -> list[ComponentAnswer]:
    """Every version of one component, or the newest of each."""
    return [_shown(row) for row in versions.listed(services.components.versions(name), name)]


def create(data: JsonBody, services: ServicesDep, labels: Labels) -> CreatedComponent:
    """Create a version with labels; ``created`` is false if it existed. Its code must be
    uploaded."""
    made = parse_component(data)
    if made.name is None:
        hint = "NAME on the command line, or `name:` in its file"
        raise SpecError(Problem("a component needs a name", "name", hint=hint))
    versions.refuse_reserved(made.name, made.version)
    spec = {key: value for key, value in made.to_dict().items() if key not in ("name", "version")}
    spec = {**spec, "type": made.type}
    with services.admission_lock:
        if not all(services.blobs.is_complete(snapshot) for snapshot in snapshots(spec)):
            raise MissingCode("the code has not been uploaded yet", hint="upload it first")
        row = services.components.create(made.name, made.version, spec)
    return {**_labelled(row, labels, services), "created": row.new}


def show(reference: str, services: ServicesDep) -> ComponentAnswer:
    asset = asset_of(reference, "component")
    with versions.absent_is_not_found():
        return _shown(services.components.row(asset))


def delete(reference: str, services: ServicesDep) -> ComponentAnswer:
    """Delete a version; pipelines that were submitted with it have a copy."""
    row = services.components.row(versions.one_version(reference, "component"))
    services.components.delete(row)
    return _shown(row)


def label(reference: str, data: JsonBody, services: ServicesDep) -> ComponentAnswer:
    """Add labels; each moves from the version that had it."""
    row = services.components.row(asset_of(reference, "component"))
    return _labelled(row, labels_of(data), services)


def _labelled(row: AssetRow, labels: list[str], services: Services) -> ComponentAnswer:
    services.components.label(row, labels)
    return _shown(services.components.row(asset_of(f"{row.name}:{row.version}", "component")))


def _shown(row: AssetRow) -> ComponentAnswer:
    return cast("ComponentAnswer", versions.shown(row))
