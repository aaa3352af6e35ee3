"""JSON messages and descriptors over a Unix socket, whose path may be long."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from typing import Any

# The most bytes of a message.
_MESSAGE = 1 << 20


def listen(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        if os.path.lexists(path):
            os.unlink(path)
        # A socket's path has at most 107 bytes; this one is short.
        listener.bind(f"/proc/self/fd/{folder}/{os.path.basename(path)}")
    finally:
        os.close(folder)
    listener.listen(128)
    listener.setblocking(False)  # a server and its successor both accept
    return listener


def send(connection: socket.socket, message: dict[str, Any], fds: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    if fds:
        socket.send_fds(connection, [data], fds)
    else:
        connection.send(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next request, and the descriptors sent with it; None at the end."""
    try:
        message, fds, _, _ = socket.recv_fds(connection, _MESSAGE, 4)
    except OSError:
        return None, []
    return (json.loads(message) if message else None), list(fds)
