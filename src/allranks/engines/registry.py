"""All engines by name. The first needs no cluster: its gangs run on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from allranks.engines.base import Kind

# The modules with their ``KIND``. Each is imported when it is looked up: a server needs one or two.
_MODULES = {
    "local": "allranks.engines.local.engine",
    "slurm": "allranks.engines.slurm.engine",
    "ray": "allranks.engines.ray.engine",
    "kubernetes": "allranks.engines.kubernetes.engine",
}


class _Kinds(Mapping[str, Kind]):
    def __getitem__(self, name: str) -> Kind:
        kind: Kind = import_module(_MODULES[name]).KIND
        return kind

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)

    def __contains__(self, name: object) -> bool:
        return name in _MODULES


KINDS: Mapping[str, Kind] = _Kinds()
