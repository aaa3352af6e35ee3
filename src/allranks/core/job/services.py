"""What a submitter is told of the services in a job file: which can be opened, and how. Pure."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from typing import Any

# Folders of a job's artifacts that TensorBoard shows; the last is SSM_TENSORBOARD_DIR.
SHOWN = ("logs", "outputs", "tensorboard")


def service_notes(job: str, services: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A sentence for each TensorBoard, and one that names all that nothing is started for."""
    others = []
    for name, service in services.items():
        if service.get("type") != "tensor_board":
            others.append(f"{name} ({service['type']})" if service.get("type") else name)
            continue
        folder = str(service.get("log_dir") or "logs").removeprefix("./")
        collected = folder.partition("/")[0] in ("logs", "outputs")
        elsewhere = (
            f"; `log_dir: {folder}` is not in it, but what is written below ./logs, ./outputs "
            "and $SSM_TENSORBOARD_DIR"
        )
        yield f"to open {name}: allranks job tensorboard {job}{'' if collected else elsewhere}"
    if others:
        yield f"the services {', '.join(others)} are recorded but not started"


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
