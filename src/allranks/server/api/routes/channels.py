"""Routes for channels into a running job: programs, shells and ports."""

from __future__ import annotations

import shlex
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from starlette.requests import Request
from starlette.responses import Response

from allranks.api.jobs import ChannelAnswer
from allranks.errors import Conflict, UsageError
from allranks.server.auth.roles import Who, require_own
from allranks.server.dependencies import ServicesDep
from allranks.server.http.request_limits import Count
from allranks.server.jobs.services import require_service
from allranks.server.jobs.view import submitter
from allranks.server.loop.channels import entered, held_rank, place, require_held

# Bytes: more than that the kernel takes for a program.
_WORDS = 1 << 20


class ChannelRequest(BaseModel):
    """A program with its words, a shell if there are none, a server of ``sftp``, a ``port``, a
    ``service`` of the job file, or with ``debug`` a debugger of a held job: of the process with
    that id, or 0. ``rank`` or ``node``: of a node, its first rank; a debugger's is by default the
    one that failed."""

    model_config = ConfigDict(extra="forbid")

    command: list[str] = []
    port: Annotated[int, Field(gt=0, lt=65536)] | None = None
    terminal: bool = False
    sftp: bool = False
    debug: Count | None = None
    service: str = ""
    rank: Count | None = None
    node: Count | None = None


def create(name: str, request: ChannelRequest, services: ServicesDep, who: Who) -> ChannelAnswer:
    """Open a channel into a job that prepares or runs. It waits for both ends for some seconds: the
    caller connects next. An entry that the node does not refuse is an event of the job."""
    row = services.records.with_ranks(name)
    require_own(who, name, submitter(row.spec))
    is_program = bool(request.command or request.terminal)
    if is_program + (request.port is not None) + request.sftp + bool(request.service) > 1:
        hint = "leave out the others"
        raise UsageError("give one of command, port, sftp and service", where="command", hint=hint)
    if request.rank is not None and request.node is not None:
        raise UsageError("give a rank or a node", where="node", hint="leave out one of them")
    if sum(map(len, request.command)) > _WORDS:
        raise UsageError("the command is too long", where="command", hint="put it into a file")
    if request.debug is not None and (request.command or request.port is not None):
        raise UsageError("a debugger has no command", where="debug", hint="leave `command` out")
    if request.debug is not None and request.rank is None and request.node is None:
        request.rank = held_rank(row)
    where = place(row, request.rank, request.node)
    what = f"exec: {shlex.join(request.command)}" if request.command else "shell"
    what = "sftp" if request.sftp else what
    if request.debug is not None:
        require_held(row, where)
        what = f"debug{f' process {request.debug}' if request.debug else ''}"
    if request.port is not None:
        what = f"port {request.port}"
    if request.service:
        require_service(row, services.records, request.service, where.node)
        what = f"service {request.service}"
    keys = {"command", "port", "service", "sftp", "terminal", "debug"}
    order = request.model_dump(include=keys)
    channel = services.channels.open(row, where, who, order, entered(row, where, who, what))
    return {"number": channel.number, "node": where.node, "rank": where.rank}


async def connect(
    request: Request, name: str, number: Count, index: Count, services: ServicesDep, who: Who
) -> Response:
    """Connect the client's end: the answer is 101, and then bytes of the protocol
    `allranks-channel`. ``index`` is 0, or a connection to the port."""
    channel = services.channels.find_own(name, number, who)
    if index and channel.order["port"] is None and not channel.order["service"]:
        raise Conflict("only a port has several connections", hint="open another channel")
    return await services.channels.connect(request, channel, index, "client")
