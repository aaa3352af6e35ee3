"""The variables with which ranks reach the server's MLflow, if their node can reach it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping

from allranks.agent import programs
from allranks.agent.transport.identity import AgentIdentity
from allranks.http_client import host

# The writing ends of the pipes that are the input of running relays.
_PIPES: list[int] = []


def variables(identity: AgentIdentity, settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return ``settings``, from the server, with the tracking URI. On the server's machine ranks
    call the server itself; elsewhere a relay on their node, which ends with the ranks or the agent.
    """
    if settings is None:
        return {}
    if identity.url.startswith("http://"):
        return {**settings, "MLFLOW_TRACKING_URI": f"{identity.url}/mlflow"}
    if identity.url.startswith("https://"):
        port = _start_relay(identity.url, identity.fingerprint)
        return {**settings, "MLFLOW_TRACKING_URI": f"http://127.0.0.1:{port}/mlflow"}
    return {}  # a mailbox: no network leads to the server


def _start_relay(url: str, fingerprint: str) -> int:
    """Start a relay and return its port."""
    port = url.rstrip("/").rpartition(":")[2]
    # A relay ends when its input is closed: end the one of the attempt before.
    while _PIPES:
        os.close(_PIPES.pop())
    reader, writer = os.pipe()
    _PIPES.append(writer)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        program = programs.path_of("relay.py")
        arguments = [program, str(listening.fileno()), host(url), port, fingerprint]
        subprocess.Popen(
            [sys.executable, "-I", "-S", *arguments],
            stdin=reader,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={"PATH": os.defpath, "ALLRANKS_GANG": os.environ.get("ALLRANKS_GANG", "")},
            pass_fds=[listening.fileno()],
        )
        os.close(reader)
        return int(listening.getsockname()[1])
