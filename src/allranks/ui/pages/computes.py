"""Computes: their hosts, what is free, and why each job waits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from allranks.errors import AllranksError
from allranks.ui import render
from allranks.ui.api import Session

if TYPE_CHECKING:
    from allranks.api.computes import ComputeAnswer, ShownCompute


async def page(request: Request) -> Response:
    session: Session = request.state.session
    listed = (await session.get("computes"))["computes"]
    shown = await asyncio.gather(*(_one(session, each) for each in listed))
    return render.page(request, "computes.html", computes=shown)


async def _one(
    session: Session, compute: ComputeAnswer | ShownCompute
) -> ComputeAnswer | ShownCompute:
    """A compute with its hosts and jobs; ``trouble`` if its cluster does not answer."""
    try:
        answer: ShownCompute = await session.get(f"computes/{compute['name']}")
        return answer
    except AllranksError as error:
        return {**compute, "hosts": [], "jobs": [], "trouble": str(error)}
