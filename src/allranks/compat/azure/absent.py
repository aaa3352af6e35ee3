"""What objects of Azure's have and ours do not: said when it is used."""

from __future__ import annotations

from functools import cache
from typing import Any, NoReturn

from allranks.compat.azure.notes import note
from allranks.compat.azure.v1.exceptions import not_there
from allranks.spec.fields.problems import nearest

INSTEAD = {
    "begin_restart": "no machines are made, so none are restarted",
    "begin_start": "no machines are made, so none are started",
    "begin_stop": "no machines are made, so none are stopped",
    "connections": "create a datastore with its credentials",
    "get_default_keyvault": "give secrets to the job: --env NAME",
    "import_data": "download it, and give its folder to Data",
    "package": "give the deployment the model itself",
    "registries": "there are none: all clients of this server see its assets",
    "serverless_endpoints": "deploy a model of your own: ManagedOnlineDeployment",
    "share": "there are no registries: all clients of this server see its assets",
    "linked_services": "name a compute: allranks compute create",
}


# Only jobs are archived here.
_IDLE = ("archive", "restore")
_STAYS = "versions are listed until they are deleted"


class Refusing(type):
    """The type of a class that says ``instead`` when it is used: called, or asked for a member."""

    absent, instead = "", ""

    def __call__(cls, *_: Any, **__: Any) -> NoReturn:
        not_there(cls.absent, cls.instead)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        not_there(cls.absent, cls.instead)


@cache
def refusing(name: str, instead: str) -> Any:
    """A name that can be imported, and raises NotThere when it is used."""
    return Refusing(name.rpartition(".")[2], (), {"absent": name, "instead": instead})


def with_words(kind: type[Any]) -> type[Any]:
    """The class with `Absent`, for objects of ours that Azure's have other members of."""
    return type(kind.__name__, (kind, Absent), {"__module__": kind.__module__})


class Absent:
    """A class whose missing attributes are named, with the nearest there is."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or hasattr(type(self), name):
            raise AttributeError(name)  # the latter: a property of ours has failed
        if name in _IDLE:
            called = f"{type(self).__name__.lstrip('_')}.{name}"
            return lambda *_, **__: note(f"no effect here: {called} ({_STAYS})")
        names = [each for each in dir(self) if each[0] != "_"]
        hint = nearest(name, names, 0.75) or "see docs/how-to/python.md"
        what = f"{type(self).__name__.lstrip('_')}.{name} is not there in allranks"
        raise AttributeError(f"{what}: {INSTEAD.get(name, hint)}")
