"""The protocol of probes: lines of JSON over TCP, with a thread for each connection.

Standard library only, for Python 3.7 or newer: it is sent to the nodes with ``probe``.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, NamedTuple


class Way(NamedTuple):
    """A connection and its input."""

    socket: socket.socket
    file: BinaryIO


def listen(address: str, port: int, serve: Callable[[Way], None]) -> socket.socket:
    """Listen, and serve each connection in a thread. Raises OSError."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        server.bind((address, port))
    except OSError:
        if port == 0:
            raise
        # A translated address (NAT) is not an address of this machine.
        server.bind(("", port))
    server.listen(128)

    def serve_one(connection: socket.socket) -> None:
        # Disconnected or malformed requests do not stop the server.
        nonsense = contextlib.suppress(OSError, ValueError, KeyError, TypeError)
        with nonsense, connection, connection.makefile("rb") as file:
            serve(Way(connection, file))

    def accept() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:  # closed
                return
            threading.Thread(target=serve_one, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return server


def dial(address: str, port: int, timeout: float) -> Way:
    connection = socket.create_connection((address, port), timeout)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Way(connection, connection.makefile("rb"))


def ask(way: Way, request: dict[str, Any]) -> dict[str, Any]:
    send(way, request)
    line = way.file.readline()
    if not line:
        raise ConnectionResetError("the other side closed the connection")
    return json.loads(line)  # type: ignore[no-any-return]


def send(way: Way, data: dict[str, Any]) -> None:
    way.socket.sendall(json.dumps(data).encode() + b"\n")


def requests(way: Way, job: str) -> Iterator[dict[str, Any]]:
    """The requests of this job's nodes; others are not answered."""
    while True:
        line = way.file.readline(1 << 20)
        request = json.loads(line) if line else {}
        if not isinstance(request, dict) or request.get("job") != job:
            return
        yield request


def error_text(error: Exception) -> str:
    """The message of an error, in lower case."""
    return (getattr(error, "strerror", None) or str(error) or type(error).__name__).lower()
