"""Keeps many nodes that fetch inputs from taking all of the server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allranks.api.agents import InputListing

# The most answers with files that are assembled and sent at once.
STREAMS = 4


class InputTurns:
    """``free``: the turns that no answer takes. ``listings``: those that are being made, by job,
    launch and path; the nodes of a gang ask for them together."""

    def __init__(self) -> None:
        self.free = asyncio.Semaphore(STREAMS)
        self.listings: dict[tuple[str, int, str], asyncio.Task[InputListing]] = {}
