"""Interrupt a running job: preempt its nodes, kill a rank, or release a held failure."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING

from allranks.api import routes
from allranks.sdk.connection import find_server

if TYPE_CHECKING:
    from allranks.api.jobs import JobAnswer


def preempt(name: str, node: int | None = None) -> JobAnswer:
    """Preempt all nodes or one node; returns the job. Raises AllranksError unless it is running."""
    return find_server.ask(routes.preempt_job, name, body={"by": _by()}, node=node)


def kill(name: str, rank: int) -> JobAnswer:
    """Kill a rank by SIGKILL; returns the job. Raises AllranksError unless it is running."""
    return find_server.ask(routes.kill_job, name, body={"by": _by()}, rank=rank)


def release(name: str, *, retry: bool = False) -> JobAnswer:
    """End a held job, or start its next attempt. Raises AllranksError unless it is held."""
    return find_server.ask(routes.release_job, name, retry=retry or None)


def _by() -> str:
    try:
        return f"{getpass.getuser()}@{os.uname().nodename}"
    except (KeyError, OSError):  # a user without a name
        return f"{os.getuid()}@{os.uname().nodename}"
