"""Where an agent is: what the engine that started it has told it."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks.agent.network import interfaces
from allranks.http_client import MAILBOX, host
from allranks.plan.environments import cluster_modules
from allranks.plan.plan import Place


class AgentIdentity(NamedTuple):
    """What the engine tells an agent by environment; the token never stands on a command line.

    An engine that does not say: ``address`` is the one this node reaches the server from, ``cpus``
    those this process may run on; ``end``: when its time is over, in seconds since the epoch.
    ``memory``: the bytes that the job may hold on this node, where the agent is to see to that.
    """

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

    @staticmethod
    def told(environ: dict[str, str]) -> AgentIdentity:
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
        )


def _own_address(url: str) -> str:
    """The address of this node by which it reaches the server; where no network leads there, the
    one that its own name stands for, or any that is not loopback."""
    if not url.startswith(MAILBOX):
        return interfaces.source(host(url))
    named = socket.gethostbyname(os.uname().nodename)
    return named if not named.startswith("127.") else interfaces.any_address()


def with_site(base: Mapping[str, str]) -> Mapping[str, str]:
    """With what the cluster's own lines changed here, where an engine has noted how it was."""
    noted = os.environ.get("ALLRANKS_AGENT_SITE")
    if noted is None:
        return base
    before, after = (
        cluster_modules.read(Path(noted, name).read_bytes()) for name in ("before", "after")
    )
    return cluster_modules.laid_over(base, before, after)


def networks(address: str, places: Sequence[Place]) -> dict[str, str]:
    """Which interface and adapters the ranks' libraries are to use."""
    interface = interfaces.interface(address, [place.address for place in places])
    # A variable, so that a test can show an agent adapters that the machine does not have.
    fabric = interfaces.fabric(Path(os.environ.get("ALLRANKS_SYS_CLASS", interfaces.SYS_CLASS)))
    same_names = len({place.interface for place in places}) == 1
    return interfaces.variables(interface, fabric, same_names)
