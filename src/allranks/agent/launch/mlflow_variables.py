"""What ranks need to speak to MLflow, where there is one that their node reaches."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

from allranks.agent import programs
from allranks.agent.transport.identity import AgentIdentity
from allranks.http_client import host

# The writing end of the input of the relay there is.
_BEFORE: list[int] = []


def variables(where: AgentIdentity, told: Mapping[str, str] | None) -> dict[str, str]:
    """``told`` is what the server says of it. On its own machine ranks speak to it as agents do;
    elsewhere to a relay on their node, which ends with the attempt's ranks or with the agent."""
    if told is None:
        return {}
    if where.url.startswith("http://"):
        return {**told, "MLFLOW_TRACKING_URI": f"{where.url}/mlflow"}
    if where.url.startswith("https://"):
        port = _relay(where.url, where.fingerprint)
        return {**told, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}/mlflow"}
    return {}  # no network leads there


def _relay(url: str, fingerprint: str) -> int:
    """The port of a relay that is started for it."""
    port = url.rstrip("/").rpartition(":")[2]
    # A relay ends once nobody has the other end of its input: the agent until the next attempt's.
    while _BEFORE:
        os.close(_BEFORE.pop())
    reader, writer = os.pipe()
    _BEFORE.append(writer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = programs.path_of("relay.py")
        words = [program, str(listening.fileno()), host(url), port, fingerprint]
        subprocess.Popen(
            [sys.executable, "-I", "-S", *words],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "ALLRANKS_GANG": os.environ.get("ALLRANKS_GANG", "")},
            pass_fds=[listening.fileno()],
        )
        os.close(reader)
        return int(listening.getsockname()[1])
