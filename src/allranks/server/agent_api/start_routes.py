"""The routes that bring nodes to their start: the agent's code, whether all of the gang are there,
and the program that makes environments.

Nodes that share a disk with the server need neither.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from allranks.errors import NotFound, Unauthorized
from allranks.server.agent_api.routes import PREFIX, row_of, who
from allranks.statuses import TERMINAL, NodeState

# A waiting node is answered after 5 s at most. Its call counts for 10 s: longer than an answer
# takes, so that nodes overlap, and shorter than the pause before a gang is placed again.
_ANSWER, _COUNTS = 5.0, 10.0
_DIGEST = re.compile(r"[0-9a-f]{64}")


async def bundle(request: Request) -> Response:
    """The zip with the agent's code of that SHA-256, which an engine has kept."""
    services, _ = who(request)
    digest = request.path_params["digest"]
    path = Path(services.home.engines, f"agent-{digest}.zip")
    if not _DIGEST.fullmatch(digest) or not path.is_file():
        raise NotFound("this server has no such code of an agent", hint="submit the job again")
    return FileResponse(path, media_type="application/zip")


async def uv(request: Request) -> Response:
    """The server's uv, for a node of the same machine type that has none."""
    services, agent = who(request)
    task = (await row_of(services, agent)).plan.task
    machine = request.path_params["machine"]
    if not task.uv or not Path(task.uv).is_file():
        raise NotFound("the job needs no uv of this server", hint="leave it out")
    if machine != os.uname().machine:
        raise NotFound(f"the server's uv does not run on {machine}", hint="add uv to the image")
    return FileResponse(task.uv, media_type="application/octet-stream")


async def start(request: Request) -> Response:
    """Whether the agents of the gang may start: all its nodes are there, or one has started. The
    answer is delayed until they may, for some seconds."""
    services, agent = who(request)
    until = time.monotonic() + _ANSWER
    while True:
        count = services.wakeups.count(agent.job)
        row = await row_of(services, agent)
        job = row.record
        if job.status in TERMINAL or agent.launch != job.launch or agent.node >= len(job.nodes):
            raise Unauthorized("this launch has ended for this node", hint="leave")
        if any(node.state is not NodeState.ABSENT for node in job.nodes):
            return JSONResponse({"start": True})
        if services.heartbeats.have_called(row, _COUNTS):
            services.wakeups.notify(agent.job)
            return JSONResponse({"start": True})
        left = until - time.monotonic()
        if left <= 0:
            return JSONResponse({"start": False})
        await services.wakeups.wait(agent.job, count, left)


def routes() -> list[Route]:
    return [
        Route(PREFIX + "/{node:int}/bundle/{digest}", bundle),
        Route(PREFIX + "/{node:int}/uv/{machine}", uv),
        Route(PREFIX + "/{node:int}/start", start),
    ]
