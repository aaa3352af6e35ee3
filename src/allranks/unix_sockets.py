"""Unix sockets whose paths may be long."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator


def connect(path: str | os.PathLike[str], timeout: float | None = None) -> socket.socket:
    """Connect to a socket of any path, however long. Raises OSError."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout)
    try:
        with short_path(path) as short:
            connected.connect(short)
    except OSError:
        connected.close()
        raise
    return connected


@contextlib.contextmanager
def short_path(path: str | os.PathLike[str]) -> Iterator[str]:
    """A path through /proc of the same socket: those of sockets have at most 107 bytes. Raises
    OSError."""
    folder, name = os.path.split(path)
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)
