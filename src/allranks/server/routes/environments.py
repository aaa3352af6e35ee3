"""Routes for environments: versions of them, labels, and what is taken in the place of what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from allranks.errors import Conflict, Problem, SpecError
from allranks.plan.environments import curated
from allranks.plan.environments.recipe import (
    Compute,
    Resolved,
    entry,
    is_image,
    looked_up,
    recipe,
    resolve,
)
from allranks.plan.plan import pack
from allranks.server.assets.labels import Labels, labels_of
from allranks.server.assets.versions import listed, one_version, refuse_words, shown
from allranks.server.dependencies import Services, services
from allranks.server.submission.submit import uv
from allranks.spec.environment import parse, unnamed
from allranks.spec.fields.azureml_references import asset_of
from allranks.store.assets import AssetRow

With = Annotated[Services, Depends(services)]
Data = Annotated[dict[str, Any], Body()]
_TAKEN = ("current", "map", "recipe")
router = APIRouter(prefix="/api/v1/environments")


@router.get("")
def list_environments(with_: With, name: str | None = None) -> list[dict[str, Any]]:
    """Every version of one, or the newest of each; those that nobody made first."""
    return [_shown(row) for row in listed(with_.environments.versions(name), name)]


@router.post("", status_code=201)
def create(data: Data, with_: With, labels: Labels) -> dict[str, Any]:
    """Add a version, with labels; "created" unless it was there: that stays as it is. What cannot
    be made is refused."""
    made = parse(data)
    assert made.name is not None
    if made.name.startswith(curated.PREFIX):
        said = f"names that begin with {curated.PREFIX!r} are of environments that are always there"
        raise Conflict(said, where=made.name, hint="give it another name")
    refuse_words(made.name, made.version, *_TAKEN)
    if not is_image(made):
        table = with_.environments.table()
        recipe(Resolved("", made), table)
    spec = made.model_dump(mode="json", exclude_defaults=True, exclude={"name", "version"})
    row = with_.assets.create(made.name, made.version, spec)
    return {**_labelled(row, labels, with_), "created": row.new}


@router.get("/map")
def show_map(with_: With) -> dict[str, Any]:
    """``map``: all of it; ``own``: what was said here."""
    known = with_.environments
    return {"map": dict(known.table()), "own": known.own_table()}


@router.put("/map", status_code=204)
def change_map(data: Data, with_: With) -> None:
    """Say what is to be taken for what; null: no longer."""
    rows = {asked: taken and str(taken) for asked, taken in data.items()}
    given = dict(entry(asked, taken) for asked, taken in rows.items() if taken)
    gone = {looked_up(asked.strip()): None for asked, taken in rows.items() if not taken}
    with_.environments.change_table({**gone, **given})


@router.post("/recipe")
def what_it_takes(data: Data, with_: With) -> dict[str, Any]:
    """The recipe of the virtual environment that ``environment`` means: a name, or one written out.
    ``uv`` is what makes it, and ``environments`` the folder that it lies in."""
    known = with_.environments
    table = known.table()
    found = resolve(unnamed(data.get("environment")), Compute(), table, known.find)
    if found.environment is None:
        hint = "nothing has to be made for it"
        raise SpecError(Problem("that is the Python in front of you", "environment", hint=hint))
    folder = str(with_.home.environments)
    return {"recipe": pack(recipe(found, table)), "uv": uv(), "environments": folder}


@router.get("/{reference}")
def show(reference: str, with_: With) -> dict[str, Any]:
    return _shown(with_.environments.row(asset_of(reference, "environment")))


@router.delete("/{reference}")
def delete(reference: str, with_: With) -> dict[str, Any]:
    """Forget a version; jobs that use it go on, and may be run again."""
    one_version(reference, "environment")
    row = _own(reference, with_)
    with_.assets.delete(row.name, row.version)
    return _shown(row)


@router.post("/{reference}/clone", status_code=201)
def clone(reference: str, data: Data, with_: With) -> dict[str, Any]:
    """The same under another name, or with changes as the next version: ``data`` is laid over."""
    row = with_.environments.row(asset_of(reference, "environment"))
    return create({**row.spec, "name": row.name, **data}, with_, [])


@router.put("/{reference}/labels")
def label(reference: str, data: Data, with_: With) -> dict[str, Any]:
    """Give it labels; each is taken from the version that had it."""
    labels = labels_of(data)
    return _labelled(_own(reference, with_), labels, with_)


def _labelled(row: AssetRow, labels: Sequence[str], with_: Services) -> dict[str, Any]:
    with_.assets.label(row.name, row.version, labels)
    return _shown(with_.environments.row(asset_of(f"{row.name}:{row.version}", "environment")))


def _own(reference: str, with_: Services) -> AssetRow:
    row = with_.environments.row(asset_of(reference, "environment"))
    if row.name in curated.ENVIRONMENTS:
        hint = f"make one of your own of it: allranks environment clone {row.name} NAME"
        raise Conflict(f"the environment {row.name!r} is always there, as it is", hint=hint)
    return row


def _shown(row: AssetRow) -> dict[str, Any]:
    return shown(row, curated=row.name in curated.ENVIRONMENTS)
