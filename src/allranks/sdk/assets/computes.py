"""Computes, for Python programs."""

from __future__ import annotations

import builtins
from typing import Any, Generic, TypeVar

from allranks.errors import AllranksError, Conflict
from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import asset_path
from allranks.spec.compute import AmlCompute, Compute

_COMPUTES = "/api/v1/computes"
_Result = TypeVar("_Result")


class Poller(Generic[_Result]):
    """What the ``begin_…`` operations of ``azure.ai.ml`` return; the operation is done already."""

    def __init__(self, result: _Result) -> None:
        self._result = result

    def result(self, timeout: float | None = None) -> _Result:
        return self._result

    def wait(self, timeout: float | None = None) -> None:
        return None

    def done(self) -> bool:
        return True

    def status(self) -> str:
        return "Succeeded"


class Computes:
    """The operations on computes; all raise AllranksError, with a hint."""

    def begin_create_or_update(self, compute: Compute) -> Poller[Compute]:
        """Create a compute, or change the one of that name.

        No machines of a cloud are created: an ``AmlCompute`` is the compute its name stands for
        already (`allranks compute map`), and an error without one.
        """
        given = compute.to_dict()
        if isinstance(compute, AmlCompute):
            try:
                return Poller(self.get(compute.name))
            except AllranksError as error:
                which = f"allranks compute map {compute.name}=COMPUTE"
                error.hint = (
                    f"no machines of a cloud are made; let its name mean a compute: {which}"
                )
                raise
        try:
            return Poller(_compute(find_server.ask("POST", _COMPUTES, given)))
        except Conflict:
            changed = {key: value for key, value in given.items() if key != "name"}
            path = asset_path("computes", compute.name)
            return Poller(_compute(find_server.ask("PATCH", path, changed)))

    def get(self, name: str) -> Compute:
        """The compute of that name, or that the name stands for."""
        return _compute(find_server.ask("GET", asset_path("computes", name)))

    def list(self) -> builtins.list[Compute]:
        return [_compute(each) for each in find_server.ask("GET", _COMPUTES)["computes"]]

    def begin_delete(self, name: str) -> Poller[None]:
        """Delete a compute; jobs that run there continue."""
        find_server.ask("DELETE", asset_path("computes", name))
        return Poller(None)


def _compute(shown: dict[str, Any]) -> Compute:
    known = {key: value for key, value in shown.items() if key in Compute.model_fields}
    return Compute.model_validate(known)
