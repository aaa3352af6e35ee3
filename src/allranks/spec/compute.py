"""A compute's definition: Azure ML's keys and the options of its engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import validated
from allranks.spec.fields.scalars import Count, Free, Integer, Seconds, Text, Texts, Wrong, matching
from allranks.spec.job_parts import snake

Tier = Annotated[Literal["dedicated", "low_priority"], BeforeValidator(snake)]
ComputeName = Annotated[
    Text,
    AfterValidator(
        matching(
            r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
            "must have 1 to 63 letters, digits, `-`, `_` or `.`, and start with a letter or digit",
            "as in `gpu-cluster`",
        )
    ),
]
# Azure's keys about cloud networks and accounts: recorded and shown, without effect on an existing
# cluster.
OF_THE_CLOUD = (
    "location",
    "identity",
    "network_settings",
    "ssh_settings",
    "ssh_public_access_enabled",
    "enable_node_public_ip",
    "subnet",
    "resource_id",
    "provisioning_state",
    "id",
    # Shown of the compute.
    "size",
    "idle_time_before_scale_down",
)


class Compute(Part):
    """A named target for jobs. ``type`` is the engine and ``options`` are its own; in a file they
    are top-level keys. ``server_address``: the address at which its nodes reach this server.
    ``gpus_per_node``: the GPUs of a job that does not set a number."""

    name: ComputeName
    type: Text
    description: Text | None = None
    tags: Texts = Field(default_factory=dict)
    properties: Texts = Field(default_factory=dict)
    size: Text | None = None
    tier: Tier | None = None
    min_instances: Annotated[Integer, Field(ge=0)] = 0
    max_instances: Count | None = None
    gpus_per_node: Annotated[Integer, Field(ge=0)] | None = None
    idle_time_before_scale_down: Seconds | None = None
    server_address: Text | None = None
    options: Free = Field(default_factory=dict)

    @model_validator(mode="after")
    def _a_range(self) -> Compute:
        if self.max_instances is not None and self.min_instances > self.max_instances:
            raise Wrong(
                f"`max_instances` is less than `min_instances` ({self.min_instances})",
                "set `max_instances` to at least `min_instances`",
            )
        return self

    @property
    def provisioning_state(self) -> str:
        """Azure's word for a compute that is there."""
        return "Succeeded"

    def to_dict(self) -> dict[str, Any]:
        """JSON data without default values; ``parse`` restores the object from it."""
        return self.model_dump(mode="json", exclude_defaults=True)


class AmlCompute(Compute):
    """An Azure cluster of virtual machines. It cannot be created here; its name can be mapped to an
    existing compute."""

    type: Text = "amlcompute"


def parse(
    data: Mapping[str, Any], lines: Mapping[str, int] | None = None, file: str | None = None
) -> tuple[Compute, tuple[str, ...]]:
    """The compute in ``data``, and its keys that have no effect here.

    Other keys are options of its engine, which checks them. Raises one SpecError with all other
    problems.
    """
    values = {key: value for key, value in data.items() if value is not None and key != "$schema"}
    idle = tuple(key for key in values if key in OF_THE_CLOUD)
    own = {key: value for key, value in values.items() if key in Compute.model_fields}
    rest = {key: values[key] for key in values if key not in own and key not in idle}
    options = own.get("options") or {}
    own["options"] = {**options, **rest} if isinstance(options, Mapping) else options
    return validated(Compute, own, {"": (Compute,)}, lines, file), idle
