"""The route through which helpers of agents connect the node's end of a channel."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from allranks.errors import Unauthorized
from allranks.server.agent_api.routes import PREFIX, who


async def connect(request: Request) -> Response:
    """Connect the node's end of a channel that somebody has opened."""
    services, agent = who(request)
    channel = services.channels.find(agent.job, request.path_params["number"])
    if (channel.launch, channel.node) != (agent.launch, agent.node):
        raise Unauthorized("the channel leads to another node", hint="leave")
    index = request.path_params["index"]
    joined = await services.channels.connect(request, channel, index, "agent")
    if index == 0 and channel.entry is not None and "refused" not in request.query_params:
        # Both ends are there, and nothing has passed between them.
        await run_in_threadpool(services.records.append, agent.job, [channel.entry])
    return joined


def routes() -> list[Route]:
    path = PREFIX + "/{node:int}/channels/{number:int}/{index:int}"
    return [Route(path, connect, methods=["POST"])]
