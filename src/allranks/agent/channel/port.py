"""Lead connections to a port or a service of this node: each has a thread, and a connection of the
channel."""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING

from allranks import unix_sockets
from allranks.agent.channel.connect import connect
from allranks.channel import Connection, Frame, relay
from allranks.errors import AllranksError

if TYPE_CHECKING:
    from allranks.agent.channel.channel_opener import Request

# Seconds to connect to a port of this node.
_CONNECT = 10.0
# The most connections at once, as the server's; a client that asks for more is not answered.
_MOST = 256
# Of the number of a connection.
_DIGITS = 15


def serve(control: Connection, request: Request) -> None:
    """Until the client leaves. Raises Lost."""
    threads: list[threading.Thread] = []
    while True:
        poll = select.poll()
        poll.register(control, control.events())
        poll.poll()
        control.flush()
        for kind, data in control.receive():
            if kind is not Frame.OPEN or not data.isdigit() or len(data) > _DIGITS:
                continue
            threads = [thread for thread in threads if thread.is_alive()]
            if len(threads) < _MOST:
                thread = threading.Thread(target=_lead, args=(request, int(data)), daemon=True)
                threads.append(thread)
                thread.start()


def _lead(request: Request, index: int) -> None:
    try:
        connection = connect(request, index)
    except AllranksError:
        return  # the client has gone
    target, reason = _connected(request)
    if target is None:
        connection.send(Frame.FAILED, reason.encode())
        connection.finish()
    else:
        relay(connection, target)


def _connected(request: Request) -> tuple[socket.socket | None, str]:
    """A connection to the port, or why there is none."""
    if request["socket"]:
        try:
            return unix_sockets.connect(request["socket"]), ""
        except OSError as error:
            return None, f"the service does not answer: {(error.strerror or str(error)).lower()}"
    port, reason = request["port"], ""
    for host in request["hosts"]:
        try:
            return socket.create_connection((host, port), _CONNECT), ""
        except OSError as error:
            reason = reason or (error.strerror or str(error)).lower()
    return None, f"nothing answers on port {port} there: {reason}"
