"""What a server that has stopped left running on this machine. Without the imports of a server."""

from __future__ import annotations

from allranks.engines.registry import KINDS
from allranks.server.endpoints.router_process import RouterProcess
from allranks.settings import Home


def end_what_runs_here(home: Home) -> list[str]:
    """End all gangs and the router of a home. Return what could not be ended."""
    RouterProcess(home.serve).end()
    engines = (kind.end_all for kind in KINDS.values() if kind.end_all is not None)
    return [process for end_all in engines for process in end_all(home)]
