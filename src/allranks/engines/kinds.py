"""Every kind of engine there is, by name; the first is the one that needs no cluster."""

from __future__ import annotations

from collections.abc import Mapping

from allranks.engines import local, ray, slurm
from allranks.engines.base import Kind

KINDS: Mapping[str, Kind] = {kind.name: kind for kind in (local.KIND, slurm.KIND, ray.KIND)}
