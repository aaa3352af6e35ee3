"""Routes for instance types: how many GPUs a cloud's instance type has."""

from __future__ import annotations

from allranks.api.server import InstancesMap
from allranks.core.job.instance_types import CPU_FAMILIES, NAME, SIZES, normalized
from allranks.errors import Problem, SpecError
from allranks.server.dependencies import JsonBody, ServicesDep

# More than any machine has, to catch typing errors.
_MOST = 1024


def show_map(services: ServicesDep) -> InstancesMap:
    """``map``: the whole map, ``own``: the part configured here, ``none``: families without
    GPUs."""
    own = services.clusters.instances()
    return {"map": {**SIZES, **own}, "own": own, "none": list(CPU_FAMILIES)}


def change_map(data: JsonBody, services: ServicesDep) -> None:
    """Set how many GPUs instance types have; null restores the built-in value, if any."""
    for size, count in data.items():
        if not NAME.fullmatch(size):
            hint = "use at most 63 letters, digits, `-`, `_` and `.`, as in Standard_NC6s_v3"
            raise SpecError(Problem(f"{size[:80]!r} is not an instance type", "SIZE", hint=hint))
        plain = isinstance(count, int) and not isinstance(count, bool)
        if count is not None and not (plain and 0 <= count <= _MOST):
            hint = f"give a number from 0 to {_MOST}, as in: allranks instance map {size} --gpus 4"
            raise SpecError(
                Problem(f"{str(count)[:80]!r} is not a number of GPUs", "--gpus", hint=hint)
            )
    named = {normalized(size) for size in data}
    other = [size for size in services.clusters.instances() if normalized(size) in named]
    services.computes.change_instances({**dict.fromkeys(other), **data})
