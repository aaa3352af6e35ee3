"""News for open pages, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from allranks.api import routes
from allranks.errors import AllranksError

# Seconds: of a question for news, and the least between two of them to a page.
_WAIT, _LEAST = 25.0, 1.0


def events(pieces: AsyncIterator[Any]) -> Response:
    """Values as server-sent events; None keeps the connection alive. An error of the API is the
    last event."""

    async def lines() -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        try:
            async for piece in pieces:
                yield b":\n\n" if piece is None else _event(piece)
        except AllranksError as error:
            yield _event({"error": error.message})

    return StreamingResponse(lines(), media_type="text/event-stream")


def _event(value: Any) -> bytes:
    return b"data: %s\n\n" % json.dumps(value).encode()


async def changes(request: Request) -> Response:
    """An event at each change of ``job``, or of any job."""
    return events(_changes(request))


async def _changes(request: Request) -> AsyncIterator[Any]:
    session, job = request.state.session, request.query_params.get("job", "")
    last = None
    while True:
        wait = 0.0 if last is None else _WAIT
        number = (await session.get(routes.changes, job=job, after=last, timeout=wait))["number"]
        yield None if number == last else {"number": number}
        last = number
        await asyncio.sleep(_LEAST)
