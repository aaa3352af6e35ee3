"""Taking a running job its nodes away, as its cluster might, or killing a rank: rehearsals."""

from __future__ import annotations

import getpass
import os
from typing import Any

from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path


def preempt(name: str, node: int | None = None) -> dict[str, Any]:
    """The job, of which all nodes or that one are to go. Raises AllranksError unless it runs."""
    query = "" if node is None else f"?node={node}"
    told: dict[str, Any] = find_server.ask(
        "POST", job_path(name, f"/preempt{query}"), {"by": _by()}
    )
    return told


def kill(name: str, rank: int) -> dict[str, Any]:
    """The job, of which that rank is to be ended by SIGKILL. Raises AllranksError unless it
    runs."""
    told: dict[str, Any] = find_server.ask(
        "POST", job_path(name, f"/kill?rank={rank}"), {"by": _by()}
    )
    return told


def _by() -> str:
    try:
        return f"{getpass.getuser()}@{os.uname().nodename}"
    except (KeyError, OSError):  # a user without a name
        return f"{os.getuid()}@{os.uname().nodename}"
