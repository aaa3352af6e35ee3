"""A listening socket that bounds how many connections one address has open.

It counts when a connection is accepted, before TLS: a connection over TLS costs a quarter of a
megabyte before it has said anything.
"""

from __future__ import annotations

import logging
import resource
import socket
import time
from collections import Counter
from typing import Any

log = logging.getLogger("allranks.listener")

# Connections that one address may have open, where the process may open as many files. An agent has
# two, and a node behind a shared address is one of hundreds.
PER_ADDRESS = 1024
# The part of the process's files that one address may take.
_PART = 0.75
_BACKLOG = 512
# Seconds between two lines in the log.
_PAUSE = 10.0


class Listener(socket.socket):
    """Bound and listening. Connections over ``per_address`` are closed at once. Raises OSError."""

    def __init__(self, family: int, address: Any, per_address: int | None = None) -> None:
        # IPPROTO_TCP said outright: asyncio turns Nagle's algorithm off only where it sees it, and
        # without that every reply waits 40 ms for the client's delayed acknowledgement.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._most = per_address if per_address is not None else most_per_address()
        self._from: Counter[str] = Counter()
        self._refused, self._told_at = 0, 0.0
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """The next connection that may be; raises BlockingIOError when there is none."""
        while True:
            plain, address = super().accept()
            host = str(address[0])
            if self._from[host] < self._most:
                self._from[host] += 1
                return _Connection(plain, self._from, host), address
            plain.close()
            self._note(host)

    def _note(self, host: str) -> None:
        self._refused += 1
        if time.monotonic() - self._told_at > _PAUSE:
            said = "%d connections were closed, the last from %s: it has %d open"
            log.warning(said, self._refused, host, self._most)
            self._refused, self._told_at = 0, time.monotonic()


class _Connection(socket.socket):
    """One that is counted until it is closed."""

    def __init__(self, plain: socket.socket, counted: Counter[str], host: str) -> None:
        family, kind, proto = plain.family, plain.type, plain.proto
        super().__init__(family, kind, proto, fileno=plain.detach())
        self._counted: Counter[str] | None = counted
        self._host = host

    def close(self) -> None:
        super().close()
        if self._counted is not None:
            self._counted[self._host] -= 1
            if not self._counted[self._host]:
                del self._counted[self._host]
            self._counted = None


def most_per_address() -> int:
    """How many connections one address may have, with files left for all else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = PER_ADDRESS if soft == resource.RLIM_INFINITY else int(soft * _PART)
    return max(1, min(PER_ADDRESS, files))
