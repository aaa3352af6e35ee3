"""Computes, for Python programs."""

from __future__ import annotations

import builtins
import contextlib
from typing import TYPE_CHECKING, Generic, TypeVar

from allranks.api import routes
from allranks.errors import Conflict, NotFound, SpecError
from allranks.sdk.connection import find_server
from allranks.spec.compute import AmlCompute, Compute

if TYPE_CHECKING:
    from allranks.api.computes import ComputeAnswer

_Result = TypeVar("_Result")


class Poller(Generic[_Result]):
    """The result of the ``begin_…`` operations of ``azure.ai.ml``; the operation is already
    complete."""

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
    """Operations on computes. All raise AllranksError with a hint."""

    def begin_create_or_update(self, compute: Compute) -> Poller[Compute]:
        """Create or change a compute.

        Cloud machines are not created: an ``AmlCompute`` is the compute that its name is mapped to
        (`allranks compute map`), from now on the default one if there is none.
        """
        data = compute.to_dict()
        if isinstance(compute, AmlCompute):
            with contextlib.suppress(NotFound):
                return Poller(self.get(compute.name))
            return Poller(self._named_like_default(compute.name))
        try:
            return Poller(_compute(find_server.ask(routes.create_compute, body=data)))
        except Conflict:
            changed = {key: value for key, value in data.items() if key != "name"}
            answer = find_server.ask(routes.update_compute, compute.name, body=changed)
            return Poller(_compute(answer))

    def _named_like_default(self, name: str) -> Compute:
        """The default compute, which has this name, too, from now on."""
        computes = find_server.ask(routes.list_computes)["computes"]
        default = next(compute["name"] for compute in computes if compute["is_default"])
        find_server.ask(routes.map_computes, body={name: default})
        return self.get(name)

    def get(self, name: str) -> Compute:
        """The compute with this name, or the one it is mapped to. Raises NotFound."""
        try:
            return _compute(find_server.ask(routes.show_compute, name))
        except SpecError as error:  # as of a job that names it
            raise NotFound(error.problems[0].message, hint=error.problems[0].hint) from None

    def list(self) -> builtins.list[Compute]:
        return [_compute(compute) for compute in find_server.ask(routes.list_computes)["computes"]]

    def begin_delete(self, name: str) -> Poller[None]:
        """Delete a compute; jobs that run there continue."""
        find_server.ask(routes.delete_compute, name)
        return Poller(None)


def _compute(shown: ComputeAnswer) -> Compute:
    fields = {key: value for key, value in shown.items() if key in Compute.model_fields}
    return Compute.model_validate(fields)
