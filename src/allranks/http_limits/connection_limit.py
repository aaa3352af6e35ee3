"""A listening socket that limits the open connections of one address.

Connections are counted when accepted, before TLS: a TLS connection takes a quarter of a megabyte
before it has sent anything.
"""

from __future__ import annotations

import asyncio.sslproto
import logging
import resource
import socket
import time
from collections import Counter, defaultdict
from typing import Any

log = logging.getLogger("allranks.listener")

# The most open connections of one address. An agent has two, and hundreds of nodes may share an
# address (NAT).
PER_ADDRESS = 1024
# The most of a listener.
MOST = 16_384
# The part of the process's file limit that one address may use.
_PART = 0.75
_BACKLOG = 512
# So many above the limit may be open until those that made room for them are closed.
_CLOSING = 16
# Seconds between two lines in the log.
_PAUSE = 10.0
# asyncio gives each TLS connection a buffer of a quarter of a megabyte: half a gigabyte for a
# thousand agents. A TLS record has no more bytes than this.
asyncio.sslproto.SSLProtocol.max_size = 16 << 10


# Connections by address that owe the head of a request, oldest first.
_silent: defaultdict[str, dict[asyncio.Transport, None]] = defaultdict(dict)


def begins_to_wait(transport: asyncio.Transport, host: str) -> None:
    """The connection owes the head of a request: it makes room for a new one of its address."""
    _silent[host][transport] = None


def ends_to_wait(transport: asyncio.Transport, host: str) -> None:
    waiting = _silent.get(host)
    if waiting is not None and waiting.pop(transport, True) is None and not waiting:
        del _silent[host]


class RefusalLog:
    """Logs refusals with their number, at most every few seconds, so that strangers cannot fill the
    log. ``message`` takes the number first."""

    def __init__(self, log: logging.Logger, message: str) -> None:
        self._log, self._message = log, message
        self._count, self._logged_at = 0, 0.0

    def note(self, *values: Any) -> None:
        self._count += 1
        if time.monotonic() - self._logged_at > _PAUSE:
            self._log.warning(self._message, self._count, *values)
            self._count, self._logged_at = 0, time.monotonic()


class Listener(socket.socket):
    """Bound and listening. Over ``per_address`` connections it closes the oldest one without a
    request, or else the new one. Raises OSError."""

    def __init__(self, family: int, address: Any, per_address: int | None = None) -> None:
        # asyncio disables Nagle's algorithm only for an explicit IPPROTO_TCP; with it, every reply
        # waits 40 ms for the client's delayed acknowledgement.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._most = per_address if per_address is not None else most_per_address()
        self._from: Counter[str] = Counter()
        self._refusals = RefusalLog(log, "%d connections were closed, the last from %s (%d open)")
        try:
            self.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self.bind(address)
            self.listen(_BACKLOG)
        except OSError:
            self.close()
            raise

    def accept(self) -> tuple[socket.socket, Any]:
        """The next allowed connection; raises BlockingIOError if none waits."""
        while True:
            plain, address = super().accept()
            host = str(address[0])
            if self._from[host] < self._most or self._makes_room(host):
                self._from[host] += 1
                return _Connection(plain, self._from, host), address
            plain.close()
            self._refusals.note(host, self._most)

    def _makes_room(self, host: str) -> bool:
        waiting = _silent.get(host)
        if not waiting or self._from[host] >= self._most + _CLOSING:
            return False
        transport = next(iter(waiting))
        ends_to_wait(transport, host)
        transport.abort()
        return True


class _Connection(socket.socket):
    """A connection that is counted until it is closed."""

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


def raise_file_limit(connections: int) -> None:
    """Allow this process files for so many connections, as far as it may: shells usually allow a
    thousand, which is less than the agents of a gang of 512 need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = int(connections / _PART)
    if hard != resource.RLIM_INFINITY:
        limit = min(limit, hard)
    if soft != resource.RLIM_INFINITY and soft < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def most_per_address() -> int:
    """The connection limit of one address, which leaves files for everything else."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = PER_ADDRESS if soft == resource.RLIM_INFINITY else int(soft * _PART)
    return max(1, min(PER_ADDRESS, files))
