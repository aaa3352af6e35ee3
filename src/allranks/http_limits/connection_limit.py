"""A listening socket that limits the open connections of one address, and of all.

Connections are counted when accepted, before TLS: a TLS connection takes a quarter of a megabyte
before it has sent anything. Where there are too many, the oldest one without a request makes room:
one in a TLS handshake, one that owes the head of a request, or one whose request was answered.
"""

from __future__ import annotations

import asyncio.sslproto
import contextlib
import logging
import resource
import socket
import time
from collections import Counter, OrderedDict, defaultdict
from typing import Any

log = logging.getLogger("allranks.listener")

# The most open connections of one address. An agent has two, and hundreds of nodes may share an
# address (NAT).
PER_ADDRESS = 1024
# The most of a listener.
MOST = 16_384
# The parts of the process's file limit that one address and all addresses may use.
_PART, _PART_OF_ALL = 0.75, 0.85
_BACKLOG = 512
# So many above the limit may be open until those that made room for them are closed.
_CLOSING = 16
# Seconds between two lines in the log.
_PAUSE = 10.0
# asyncio gives each TLS connection a buffer of a quarter of a megabyte: half a gigabyte for a
# thousand agents. A TLS record has no more bytes than this.
asyncio.sslproto.SSLProtocol.max_size = 16 << 10


# The connections of all listeners of this process, by file descriptor.
_open: dict[int, _Connection] = {}
# Those without a request, oldest first: all of them, and those of each address.
_idle: OrderedDict[_Connection, None] = OrderedDict()
_idle_of: defaultdict[str, OrderedDict[_Connection, None]] = defaultdict(OrderedDict)


def mark_idle(transport: asyncio.Transport) -> None:
    """The connection has no request that runs: it makes room for a new one."""
    if (connection := _connection(transport)) is not None:
        connection.mark_idle()


def mark_busy(transport: asyncio.Transport) -> None:
    if (connection := _connection(transport)) is not None:
        connection.mark_busy()


def _connection(transport: asyncio.Transport) -> _Connection | None:
    plain = transport.get_extra_info("socket")
    return None if plain is None else _open.get(plain.fileno())


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
    """Bound and listening, or one that is already: ``fileno``. Over ``per_address`` connections, or
    `most_of_all`, it closes the oldest one without a request, or else the new one. Raises
    OSError."""

    def __init__(
        self,
        family: int,
        address: Any,
        per_address: int | None = None,
        fileno: int | None = None,
    ) -> None:
        # asyncio disables Nagle's algorithm only for an explicit IPPROTO_TCP; with it, every reply
        # waits 40 ms for the client's delayed acknowledgement.
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP, fileno)
        self._most = per_address if per_address is not None else most_per_address()
        self._from: Counter[str] = Counter()
        self._refusals = RefusalLog(log, "%d connections were closed, the last from %s (%d open)")
        self._pause = False
        if fileno is not None:
            return
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
            if self._pause:  # the loop closes the connections that made room before it goes on
                self._pause = False
                raise BlockingIOError
            plain, address = super().accept()
            host = str(address[0])
            of_host, of_all = self._from[host] - self._most, len(_open) - most_of_all()
            self._pause = of_host >= 0 or of_all >= 0
            if not self._pause or _make_room(of_host, of_all, host):
                self._from[host] += 1
                return _Connection(plain, self._from, host), address
            plain.close()
            self._refusals.note(host, len(_open))


def _make_room(of_host: int, of_all: int, host: str) -> bool:
    """Close an idle connection, of the host if that has too many; False if none is idle.
    ``of_host`` and ``of_all``: how many more than allowed are open."""
    idle = _idle_of.get(host) if of_host >= 0 else _idle
    if not idle or max(of_host, of_all) >= _CLOSING:
        return False
    next(iter(idle)).hang_up()
    return True


class _Connection(socket.socket):
    """A connection that is counted until it is closed."""

    def __init__(self, plain: socket.socket, counted: Counter[str], host: str) -> None:
        family, kind, proto = plain.family, plain.type, plain.proto
        super().__init__(family, kind, proto, fileno=plain.detach())
        self._counted: Counter[str] | None = counted
        self._host = host
        _open[self.fileno()] = self
        self.mark_idle()

    def mark_idle(self) -> None:
        _idle[self] = _idle_of[self._host][self] = None

    def mark_busy(self) -> None:
        _idle.pop(self, None)
        idle = _idle_of.get(self._host)
        if idle is not None and idle.pop(self, True) is None and not idle:
            del _idle_of[self._host]

    def hang_up(self) -> None:
        """End it for both sides: the event loop, which holds it, then closes it."""
        self.mark_busy()
        with contextlib.suppress(OSError):  # the peer did
            self.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        if self._counted is not None:
            self.mark_busy()
            _open.pop(self.fileno(), None)
            self._counted[self._host] -= 1
            if not self._counted[self._host]:
                del self._counted[self._host]
            self._counted = None
        super().close()


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
    return _share(PER_ADDRESS, _PART)


def most_of_all() -> int:
    """The connection limit of all addresses together."""
    return _share(MOST, _PART_OF_ALL)


def _share(most: int, part: float) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = most if soft == resource.RLIM_INFINITY else int(soft * part)
    return max(1, min(most, files))
