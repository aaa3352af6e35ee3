"""Routes for environments: versions, labels, and the map of names to environments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from allranks.api.assets import CreatedEnvironment, EnvironmentAnswer, EnvironmentMap, RecipeAnswer
from allranks.core.environments import curated
from allranks.core.environments.recipe import (
    Compute,
    Resolved,
    entry,
    is_image,
    looked_up,
    recipe,
    resolve,
)
from allranks.core.packing import pack
from allranks.errors import Conflict, Problem, SpecError
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.assets.versions import (
    absent_is_not_found,
    listed,
    one_version,
    refuse_reserved,
    shown,
)
from allranks.server.dependencies import JsonBody, Services, ServicesDep
from allranks.server.submission.submit import uv
from allranks.spec.environment import parse, unnamed
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.assets import AssetRow

_TAKEN = ("current", "map", "recipe")


def list_environments(services: ServicesDep, name: str | None = None) -> list[EnvironmentAnswer]:
    """Every version of one environment, or the newest of each; curated ones first."""
    return [_shown(row) for row in listed(services.environments.versions(name), name)]


def create(data: JsonBody, services: ServicesDep, labels: Labels) -> CreatedEnvironment:
    """Create a version with labels; ``created`` is false if it existed. Refuses environments that
    cannot be built."""
    made = parse(data)
    assert made.name is not None
    if made.name.startswith(curated.PREFIX):
        message = f"names that begin with {curated.PREFIX!r} are reserved for curated environments"
        raise Conflict(message, where=made.name, hint="choose another name")
    refuse_reserved(made.name, made.version, *_TAKEN)
    if not is_image(made):
        table = services.environments.table()
        recipe(Resolved("", made), table)
    spec = made.model_dump(mode="json", exclude_defaults=True, exclude={"name", "version"})
    row = services.assets.create(made.name, made.version, spec)
    return {**_labelled(row, labels, services), "created": row.new}


def show_map(services: ServicesDep) -> EnvironmentMap:
    """``map``: the whole map; ``own``: the part that is configured in this home."""
    environments = services.environments
    return {"map": dict(environments.table()), "own": environments.own_table()}


def change_map(data: JsonBody, services: ServicesDep) -> None:
    """Set what stands for environments and packages; null removes an entry."""
    set_ = dict(entry(name, str(to)) for name, to in data.items() if to)
    removed = {looked_up(name.strip()): None for name, to in data.items() if not to}
    services.environments.change_table({**removed, **set_})


def show_recipe(data: JsonBody, services: ServicesDep) -> RecipeAnswer:
    """The recipe of the virtual environment ``environment``, a name or an inline definition; ``uv``
    is the program that builds it, ``environments`` the folder of virtual environments."""
    environments = services.environments
    table = environments.table()
    resolved = resolve(unnamed(data.get("environment")), Compute(), table, environments.find)
    if resolved.environment is None:
        hint = "it needs no virtual environment"
        raise SpecError(Problem("this means the current Python", "environment", hint=hint))
    folder = str(services.home.environments)
    packed = pack(recipe(resolved, table))
    return {"name": resolved.name, "recipe": packed, "uv": uv(), "environments": folder}


def show(reference: str, services: ServicesDep) -> EnvironmentAnswer:
    asset = asset_of(reference, "environment")
    with absent_is_not_found():
        return _shown(services.environments.row(asset))


def delete(reference: str, services: ServicesDep) -> EnvironmentAnswer:
    """Delete a version; jobs that use it continue and can be restarted."""
    one_version(reference, "environment")
    row = _own(reference, services)
    services.assets.delete(row.name, row.version)
    return _shown(row)


def clone(reference: str, data: JsonBody, services: ServicesDep) -> CreatedEnvironment:
    """Copy it under another name, or as the next version, with ``data`` overriding its keys."""
    row = services.environments.row(asset_of(reference, "environment"))
    return create({**row.spec, "name": row.name, **data}, services, [])


def label(reference: str, data: JsonBody, services: ServicesDep) -> EnvironmentAnswer:
    """Add labels; each moves from the version that had it."""
    labels = labels_of(data)
    return _labelled(_own(reference, services), labels, services)


def _labelled(row: AssetRow, labels: Sequence[str], services: Services) -> EnvironmentAnswer:
    services.assets.label(row.name, row.version, labels)
    return _shown(services.environments.row(asset_of(f"{row.name}:{row.version}", "environment")))


def _own(reference: str, services: Services) -> AssetRow:
    row = services.environments.row(asset_of(reference, "environment"))
    if row.name in curated.ENVIRONMENTS:
        hint = f"copy it: allranks environment clone {row.name} NAME"
        raise Conflict(f"the environment {row.name!r} is curated and cannot be changed", hint=hint)
    return row


def _shown(row: AssetRow) -> EnvironmentAnswer:
    return cast("EnvironmentAnswer", shown(row, curated=row.name in curated.ENVIRONMENTS))
