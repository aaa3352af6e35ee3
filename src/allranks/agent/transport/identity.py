"""The identity of an agent, as the engine that started it configured it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from allranks.agent.network import interfaces
from allranks.core.environments import cluster_modules
from allranks.core.plan import Place
from allranks.http_client import MAILBOX, host


class AgentIdentity(NamedTuple):
    """The engine's variables for an agent; the token never appears on a command line.

    ``address`` defaults to the one this node reaches the server from, ``cpus`` to those this
    process may run on. ``end``: when the engine's time limit ends, in seconds since the epoch.
    ``memory``: bytes that the job may hold on this node, if the agent has to enforce that.
    ``cache``: a folder of this node that outlives the agent, by default the agent's own.
    ``own_disk``: the node does not see the server's home."""

    url: str
    token: str
    fingerprint: str
    launch: int
    node: int
    folder: Path
    address: str
    cpus: int
    end: float | None = None
    memory: int | None = None
    cache: Path | None = None
    own_disk: bool = False

    @staticmethod
    def from_environ(environ: dict[str, str]) -> AgentIdentity:
        """Read the variables. Raises KeyError, ValueError or OSError."""
        prefix = "ALLRANKS_AGENT_"
        url = environ[prefix + "URL"]
        return AgentIdentity(
            url,
            environ[prefix + "TOKEN"],
            environ.get(prefix + "FINGERPRINT", ""),
            int(environ[prefix + "LAUNCH"]),
            int(environ[prefix + "NODE"]),
            Path(environ[prefix + "DIR"]),
            environ.get(prefix + "ADDRESS") or _own_address(url),
            int(environ.get(prefix + "CPUS") or len(os.sched_getaffinity(0))),
            float(environ[prefix + "END"]) if environ.get(prefix + "END") else None,
            int(environ[prefix + "MEMORY"]) if environ.get(prefix + "MEMORY") else None,
            Path(environ.get(prefix + "CACHE") or Path(environ[prefix + "DIR"], "cache")),
            environ.get(prefix + "OWN_DISK") == "1",
        )


def _own_address(url: str) -> str:
    """The address from which this node reaches the server; with a mailbox, the one its host name
    resolves to, or any that is not loopback."""
    if not url.startswith(MAILBOX):
        return interfaces.source(host(url))
    named = socket.gethostbyname(os.uname().nodename)
    return named if not named.startswith("127.") else interfaces.any_address()


def with_site(base: Mapping[str, str]) -> Mapping[str, str]:
    """Return the environment with the changes of the engine's modules and prologue, if any."""
    folder = os.environ.get("ALLRANKS_AGENT_SITE")
    if folder is None:
        return base
    before, after = (
        cluster_modules.read(Path(folder, name).read_bytes()) for name in ("before", "after")
    )
    return cluster_modules.laid_over(base, before, after)


@lru_cache(maxsize=2)
def interface_to(address: str, peers: tuple[str, ...]) -> interfaces.Interface | None:
    """As ``interfaces.interface``, looked up once. A node without peers asks at READY and at GO."""
    return interfaces.interface(address, peers)


def networks(address: str, places: Sequence[Place]) -> dict[str, str]:
    """Return the variables that select the interface and adapters for the ranks' libraries."""
    peers = tuple(place.address for place in places if place.address != address)
    interface = interface_to(address, peers)
    # The variable lets a test simulate adapters.
    fabric = interfaces.fabric(Path(os.environ.get("ALLRANKS_SYS_CLASS", interfaces.SYS_CLASS)))
    same_names = len({place.interface for place in places}) == 1
    return interfaces.variables(interface, fabric, same_names)
