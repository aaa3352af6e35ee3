"""Services of a job and its identity, with Azure ML's keys.

Which of them nodes start: see `core.job.services`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag

from allranks.spec.fields.base import Part
from allranks.spec.fields.problems import nearest
from allranks.spec.fields.scalars import Free, Port, Text, Wrong
from allranks.spec.job_parts import snake, without

# Azure ML's own types; any other is the user's, kept as it is written.
_TYPES = (
    "ssh",
    "jupyter_lab",
    "tensor_board",
    "vs_code",
    "custom",
    "tracking",
    "studio",
    "ray_dashboard",
)


class JobService(Part):
    """A service of a running job. ``nodes``: ``all``, or None for the first. ``command`` is ours:
    what starts it."""

    type: Text | None = None
    command: Text | None = None
    port: Port | None = None
    nodes: Literal["all"] | None = None
    properties: Free = Field(default_factory=dict)


class SshJobService(JobService):
    type: Literal["ssh"] = "ssh"
    ssh_public_keys: Text | None = None


class JupyterLabJobService(JobService):
    type: Literal["jupyter_lab"] = "jupyter_lab"


class TensorBoardJobService(JobService):
    type: Literal["tensor_board"] = "tensor_board"
    log_dir: Text | None = None


class VsCodeJobService(JobService):
    type: Literal["vs_code"] = "vs_code"


class ManagedIdentityConfiguration(Part):
    """A managed identity of the compute; without an id, its default."""

    type: Literal["managed"] = "managed"
    client_id: Text | None = None
    object_id: Text | None = None
    msi_resource_id: Text | None = None


class UserIdentityConfiguration(Part):
    """The identity of the submitter."""

    type: Literal["user_identity"] = "user_identity"


class AmlTokenConfiguration(Part):
    """A token of the workspace's."""

    type: Literal["aml_token"] = "aml_token"


def _typed(value: object) -> object:
    """The mapping with its ``type`` in the schema's spelling."""
    if not isinstance(value, Mapping):
        return value
    # The REST API's name.
    kind = value.get("type", value.get("job_service_type"))
    rest = {key: item for key, item in value.items() if key not in ("type", "job_service_type")}
    return rest if kind is None else {"type": snake(kind), **rest}


def _service(value: object) -> object:
    """Like ``_typed``; a user's own type is kept as written. Raises Wrong for one that is likely
    misspelt: nothing else would start it."""
    typed = _typed(value)
    if isinstance(typed, dict) and typed.get("type") not in (None, *_TYPES):
        hint = nearest(str(typed["type"]), _OWN_KEYS, 0.75)
        if hint and typed.get("command") is None and typed.get("port") is None:
            raise Wrong(f"`{typed['type']}` is not a type of service that starts", hint)
        typed["type"] = value.get("type", typed["type"])  # type: ignore[attr-defined]  # a mapping
    return typed


def _kind(value: Any) -> str:
    kind = value.get("type") if isinstance(value, Mapping) else getattr(value, "type", None)
    return str(kind) if kind in _OWN_KEYS else "other"


_OWN_KEYS: Mapping[str, type[JobService]] = {
    "ssh": SshJobService,
    "jupyter_lab": JupyterLabJobService,
    "tensor_board": TensorBoardJobService,
    "vs_code": VsCodeJobService,
}
AnyService = Annotated[
    Annotated[SshJobService, Tag("ssh")]
    | Annotated[JupyterLabJobService, Tag("jupyter_lab")]
    | Annotated[TensorBoardJobService, Tag("tensor_board")]
    | Annotated[VsCodeJobService, Tag("vs_code")]
    | Annotated[JobService, Tag("other")],
    Discriminator(_kind),
    BeforeValidator(_service),
    without("endpoint", "status", "error_message"),
]
Identity = Annotated[
    ManagedIdentityConfiguration | UserIdentityConfiguration | AmlTokenConfiguration,
    Field(discriminator="type"),
    BeforeValidator(_typed),
]
# Keys of all services and identities, for suggestions.
SERVICES: tuple[type[BaseModel], ...] = (JobService, *_OWN_KEYS.values())
IDENTITIES: tuple[type[BaseModel], ...] = (
    ManagedIdentityConfiguration,
    UserIdentityConfiguration,
    AmlTokenConfiguration,
)
