"""JSON messages and descriptors over a Unix socket, whose path may be long.

Agents and the fork server use it, too. A socket's path has at most 107 bytes: here it goes through
a descriptor of its folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

# The most bytes of a message.
MESSAGE = 1 << 20


def listen(path: str) -> socket.socket:
    """Listen there, in place of another. Accepting does not block. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(path) as short:
            if os.path.lexists(path):
                os.unlink(path)
            listener.bind(short)
        listener.listen(128)
        listener.setblocking(False)  # a server and its successor both accept
    except OSError:
        listener.close()
        raise
    return listener


def connect(path: str) -> socket.socket | None:
    """A connection, or None if nobody listens there."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(path) as short:
            connection.connect(short)
    except OSError:
        connection.close()
        return None
    return connection


@contextlib.contextmanager
def _short(path: str) -> Iterator[str]:
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def send(connection: socket.socket, message: Mapping[str, Any], fds: Sequence[int] = ()) -> None:
    data = json.dumps(message).encode()
    if fds:
        socket.send_fds(connection, [data], fds)
    else:
        connection.send(data)


def receive(connection: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """The next request, and the descriptors sent with it; None at the end."""
    try:
        message, fds, _, _ = socket.recv_fds(connection, MESSAGE, 4)
    except OSError:
        return None, []
    return (json.loads(message) if message else None), list(fds)
