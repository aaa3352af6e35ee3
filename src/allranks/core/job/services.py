"""The services in a job file: what nodes start, and what the submitter is told. Pure."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from allranks.core.plan import ServiceTask

# Folders of a job's artifacts that TensorBoard shows; the last is SSM_TENSORBOARD_DIR.
SHOWN = ("logs", "outputs", "tensorboard")
# The programs of which one has to be there for VS Code.
VS_CODES = ("code-server", "openvscode-server")
_STARTED = ("jupyter_lab", "vs_code")
_OPENED = ("ssh", "tensor_board", *_STARTED)
# Azure's own pages of a job, which it puts into its answers.
_PAGES = ("studio", "tracking")


class _Service(Protocol):
    """One of `spec.services`."""

    type: Any
    command: Any
    port: Any
    nodes: Any


def service_tasks(services: Mapping[str, _Service]) -> tuple[ServiceTask, ...]:
    """What a node has of each; nothing of those that are only Azure's pages, or that have neither
    a program nor a port."""
    return tuple(
        ServiceTask(
            name,
            str(service.type or ""),
            service.command or "",
            service.port,
            getattr(service, "log_dir", None) or "",
            service.nodes == "all",
        )
        for name, service in services.items()
        if service.type not in _PAGES
        and (service.type in _OPENED or service.command or service.port)
    )


def service_notes(job: str, services: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Sentences on how to open what starts, and on what does not."""
    for name, service in services.items():
        kind, keys = service.get("type"), str(service.get("ssh_public_keys") or "")
        if kind == "ssh":
            yield f"to open {name}: allranks job ssh-config {job}"
            if keys.strip() and not public_keys(keys):
                yield f"`ssh_public_keys` of {name} is no public key, and lets nobody in"
        elif kind == "tensor_board":
            yield f"to open {name}: allranks job tensorboard {job}"
        elif kind in _STARTED or service.get("command") or service.get("port"):
            yield f"to open {name}: allranks job port-forward {job} {shlex.quote(name)}"
        elif kind not in _PAGES:
            what = f"{name} ({kind})" if kind else name
            yield f"the service {what} has neither a command nor a port, and nothing is started"


def public_keys(text: str) -> list[str]:
    """The lines of ``ssh_public_keys`` that are public keys, as ssh-keygen writes them."""
    return [line.strip() for line in text.splitlines() if _is_public_key(line)]


def _is_public_key(line: str) -> bool:
    kind, encoded, *_ = *line.split(maxsplit=2), "", ""
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        return False
    length = int.from_bytes(data[:4])
    return length > 0 and data[4 : 4 + length] == kind.encode()
