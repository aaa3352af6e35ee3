"""Interrupt a running job: preempt its nodes, kill a rank, or release a held failure."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from allranks.sdk.connection import find_server
from allranks.sdk.connection.urls import job_path

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer


def preempt(name: str, node: int | None = None) -> JobAnswer:
    """Preempt all nodes or one node; returns the job. Raises AllranksError unless it is running."""
    query = "" if node is None else f"?node={node}"
    job: JobAnswer = find_server.ask("POST", job_path(name, f"/preempt{query}"), {"by": _by()})
    return job


def kill(name: str, rank: int) -> JobAnswer:
    """Kill a rank by SIGKILL; returns the job. Raises AllranksError unless it is running."""
    job: JobAnswer = find_server.ask("POST", job_path(name, f"/kill?rank={rank}"), {"by": _by()})
    return job


def release(name: str, *, retry: bool = False) -> JobAnswer:
    """End a held job, or start its next attempt. Raises AllranksError unless it is held."""
    query = "?retry=true" if retry else ""
    job: JobAnswer = find_server.ask("POST", job_path(name, f"/release{query}"))
    return job


def _by() -> str:
    try:
        return f"{getpass.getuser()}@{os.uname().nodename}"
    except (KeyError, OSError):  # a user without a name
        return f"{os.getuid()}@{os.uname().nodename}"
