"""Routes for instance types: how many GPUs a size of a cloud has."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Body, Depends

from allranks.errors import Problem, SpecError
from allranks.plan.job.instance_types import CPU_FAMILIES, NAME, SIZES, normalized
from allranks.server.dependencies import Services, services

With = Annotated[Services, Depends(services)]
router = APIRouter(prefix="/api/v1/instances")
# More than any machine has: a slip of the finger is told.
_MOST = 1024


@router.get("/map")
def show_map(with_: With) -> dict[str, Any]:
    """``map``: all of it, ``own``: what was said here, ``none``: families without GPUs."""
    own = with_.clusters.instances()
    return {"map": {**SIZES, **own}, "own": own, "none": list(CPU_FAMILIES)}


@router.put("/map", status_code=204)
def change_map(data: Annotated[dict[str, Any], Body()], with_: With) -> None:
    """Set how many GPUs instance types have; null: what is built in, if anything."""
    for size, count in data.items():
        if not NAME.fullmatch(size):
            hint = "1 to 63 of letters, digits, `-`, `_` and `.`, as in Standard_NC6s_v3"
            raise SpecError(Problem(f"{size[:80]!r} is no instance type", "SIZE", hint=hint))
        plain = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (plain and 0 <= count <= _MOST):
            hint = f"a number from 0 to {_MOST}, as in: allranks instance map {size} --gpus 4"
            raise SpecError(
                Problem(f"{str(count)[:80]!r} is no number of GPUs", "--gpus", hint=hint)
            )
    named = {normalized(size) for size in data}
    other = [size for size in with_.clusters.instances() if normalized(size) in named]
    with_.computes.change_instances({**dict.fromkeys(other), **data})
