"""What objects of Azure's have and ours do not: said when it is used."""

from __future__ import annotations

import difflib
from typing import Any

_INSTEAD = {
    "get_default_keyvault": "give secrets to the job: --env NAME",
    "linked_services": "name a compute: allranks compute create",
}


class Absent:
    """A class whose missing attributes are named, with the nearest there is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(type(self), name):
            raise AttributeError(name)  # the latter: a property of ours has failed
        near = difflib.get_close_matches(name, [e for e in dir(self) if e[0] != "_"], 1, 0.75)
        hint = f"did you mean {near[0]}?" if near else "see docs/how-to/python.md"
        what = f"{type(self).__name__.lstrip('_')}.{name} is not there in allranks"
        raise AttributeError(f"{what}: {_INSTEAD.get(name, hint)}")
