"""`azureml.core.compute`: a target is the compute its name stands for. No machines are made."""

from __future__ import annotations

from typing import Any

from allranks.compat.azure.notes import without_effect
from allranks.compat.azure.v1.exceptions import ComputeTargetException
from allranks.errors import NotFound
from allranks.sdk import Client
from allranks.spec.compute import AmlCompute as _AmlCompute

LOCAL = ("local", "amlcompute")


_NO_MACHINES = "no machines are made"
# Computes whose jobs may be preempted, by `vm_priority`, in this process.
_SPOT: set[str] = set()


def is_spot(target: object) -> bool:
    """Whether jobs of a target, or of the one with that name, may be preempted."""
    return getattr(target, "name", target) in _SPOT


class ProvisioningConfiguration:
    """Sizes and counts, which have no effect. With ``vm_priority`` `lowpriority` the jobs that this
    program submits there are spot jobs."""

    def __init__(self, vm_size: str = "", vm_priority: str = "", **settings: Any) -> None:
        self.vm_size, self.vm_priority = vm_size, vm_priority
        self.given = {"vm_size": vm_size, **settings}


class ComputeTargetStatus:
    """What Azure's scripts print of a target."""

    def __init__(self, name: str) -> None:
        self.allocation_state, self.provisioning_state = "Steady", "Succeeded"
        self.current_node_count = self.target_node_count = 1
        self.errors = None
        self._name = name

    def serialize(self) -> dict[str, Any]:
        keys = ("allocation_state", "provisioning_state", "current_node_count", "errors")
        return {"name": self._name, **{key: getattr(self, key) for key in keys}}

    def __str__(self) -> str:
        return str(self.serialize())


class ComputeTarget:
    """The compute ``name``. Raises ComputeTargetException if nothing has that name, as scripts
    expect that create a target if there is none."""

    type = "AmlCompute"
    provisioning_state = "Succeeded"

    def __init__(self, workspace: object, name: str) -> None:
        try:
            self._compute = Client().compute.get(name)
        except NotFound as error:
            raise ComputeTargetException(error.message, hint=error.hint) from None
        self.workspace, self.name = workspace, name

    @classmethod
    def create(
        cls, workspace: object, name: str, provisioning_configuration: object
    ) -> ComputeTarget:
        """``name`` stands for the default compute from now on (`allranks compute map`)."""
        Client().compute.begin_create_or_update(_AmlCompute(name=name))
        if isinstance(provisioning_configuration, ProvisioningConfiguration):
            sizes = provisioning_configuration.given
            without_effect("AmlCompute.provisioning_configuration", sizes, _NO_MACHINES)
            if provisioning_configuration.vm_priority == "lowpriority":
                _SPOT.add(name)
        return cls(workspace, name)

    @property
    def vm_priority(self) -> str:
        return "lowpriority" if is_spot(self) else "dedicated"

    def wait_for_completion(
        self,
        show_output: bool = False,
        min_node_count: int | None = None,
        timeout_in_minutes: float | None = None,
        **_: Any,
    ) -> None:
        """It is there."""
        if show_output:
            print(f"{self.name} is the compute {self._compute.name} of allranks")

    def get_status(self) -> ComputeTargetStatus:
        return ComputeTargetStatus(self.name)

    @property
    def status(self) -> ComputeTargetStatus:
        return self.get_status()

    def serialize(self) -> dict[str, Any]:
        return {"name": self.name, "computeType": self.type, "provisioningState": "Succeeded"}

    def list_nodes(self) -> list[dict[str, Any]]:
        """None: see `allranks top`."""
        return []

    def update(self, **settings: Any) -> None:
        """Counts have no effect."""
        without_effect("AmlCompute.update", settings, _NO_MACHINES)

    def delete(self) -> None:
        """No machines were made, so none are deleted."""

    def __repr__(self) -> str:
        return f"AmlCompute(name={self.name})"


class AmlCompute(ComputeTarget):
    """As above."""

    @staticmethod
    def provisioning_configuration(
        vm_size: str = "", vm_priority: str = "dedicated", **settings: Any
    ) -> ProvisioningConfiguration:
        return ProvisioningConfiguration(vm_size, vm_priority, **settings)

    @classmethod
    def supported_vmsizes(cls, workspace: object, location: str | None = None) -> list[Any]:
        return []


class ComputeInstance(AmlCompute):
    """As above."""
