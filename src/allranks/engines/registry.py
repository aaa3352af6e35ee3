"""All engines by name. The first needs no cluster."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.engines.base import Kind
from allranks.engines.kubernetes import engine as kubernetes
from allranks.engines.local import engine as local
from allranks.engines.ray import engine as ray
from allranks.engines.slurm import engine as slurm

KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (local.KIND, slurm.KIND, ray.KIND, kubernetes.KIND)
}
