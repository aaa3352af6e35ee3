"""The listener for other machines: all routes, over TLS, for callers with a token.

The server always listens on loopback. This listener is opened on request (`server start --host`),
and again whenever the home's server starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from allranks import folder_trees
from allranks.errors import AllranksError, UsageError
from allranks.http_limits.connection_limit import Listener
from allranks.http_limits.server import SecondServer, config
from allranks.server.http.agents_listener import AgentsListener
from allranks.server.http.host_header_check import HostNames
from allranks.settings import Home, read_json

if TYPE_CHECKING:
    from allranks.api.server import PublicEndpoint

log = logging.getLogger("allranks.front")

App = Callable[..., Any]

PORT = 7443
# The most concurrent connections.
_MOST = 1024


class PublicAddress(NamedTuple):
    """``host`` is a name or an address of this machine; 0.0.0.0 is all addresses. ``certificate``
    is a PEM file with a key and its certificates; empty: the home's own. Without ``tls``
    everything, including tokens, is sent unencrypted."""

    host: str
    port: int = PORT
    certificate: str = ""
    tls: bool = True


class PublicListener:
    """For the server's event loop."""

    def __init__(self, home: Home, agents_listener: AgentsListener, names: HostNames) -> None:
        self._home, self._agents_listener, self._names = home, agents_listener, names
        self._serving: tuple[SecondServer, asyncio.Task[None], socket.socket] | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.app: App | None = None

    async def reopen(self) -> None:
        """Listen where the last server did. A failure is logged."""
        where = load(self._home)
        if where is not None:
            try:
                await self.open(where)
            except AllranksError as error:
                log.error("%s (%s)", error, error.hint)

    async def open(self, where: PublicAddress) -> PublicEndpoint:
        """Listen on the address instead of the current one; returns `endpoint`. Raises UsageError,
        and then nothing has changed."""
        server = self._server(where)
        listening = await self._move(where)
        self._names.more.add(where.host.lower())
        task = asyncio.create_task(server.serve(sockets=[listening]))
        self._serving = (server, task, listening)
        save(self._home, where)
        return endpoint(where, self.fingerprint(where))

    async def _move(self, where: PublicAddress) -> socket.socket:
        """Listen on the new address, then leave the current one."""
        before = load(self._home)
        try:
            listening = _listen(where)
        except UsageError:
            if self._serving is None or before is None or before.port != where.port:
                raise
            self.leave()  # the port may be in use by this listener itself
            try:
                return _listen(where)
            except UsageError:
                await self.open(before)
                raise
        self.leave()
        return listening

    def leave(self, *, for_good: bool = False) -> None:
        """Accept no more; what is being answered ends by itself, the caller's own request too."""
        if self._serving is not None:
            server, task, listening = self._serving
            self._serving = None
            server.leave()
            listening.close()
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        if for_good:
            self._home.front.unlink(missing_ok=True)

    async def close(self) -> None:
        """Leave, and wait until all is answered."""
        self.leave()
        await asyncio.gather(*self._ending, return_exceptions=True)

    def fingerprint(self, where: PublicAddress) -> str:
        """The fingerprint of the home's self-signed certificate; empty if it is not used."""
        return self._agents_listener.fingerprint if where.tls and not where.certificate else ""

    def _server(self, where: PublicAddress) -> SecondServer:
        assert self.app is not None
        certificate = where.certificate or str(self._agents_listener.certificate())
        try:
            shown = certificate if where.tls else None
            return SecondServer(config(self.app, certificate=shown, most=_MOST))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"cannot use the certificate: {error}",
                where=certificate,
                hint="give a PEM file with the key, the server's certificate and its chain",
            ) from error


def load(home: Home) -> PublicAddress | None:
    """The address that was opened last; None: none, or it was closed."""
    with contextlib.suppress(TypeError):
        return PublicAddress(**read_json(home.front, dict))
    return None


def save(home: Home, where: PublicAddress) -> None:
    folder_trees.write_file(home.front, json.dumps(where._asdict()))


def endpoint(where: PublicAddress, fingerprint: str) -> PublicEndpoint:
    """``{"url", "fingerprint"}``, by which clients connect."""
    url = f"{'https' if where.tls else 'http'}://{name_of(where)}:{where.port}"
    return {"url": url, "fingerprint": fingerprint}


def name_of(where: PublicAddress) -> str:
    """The host as it is in an address."""
    host = socket.gethostname() if where.host in ("0.0.0.0", "::") else where.host
    return f"[{host}]" if ":" in host else host


def _listen(where: PublicAddress) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)[0]
        return Listener(family, address)
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"cannot listen: {(getattr(error, 'strerror', None) or str(error)).lower()}",
            where=f"{where.host}:{where.port}",
            hint="use an address of this machine (`ip address`), or 0.0.0.0 for all; another port: "
            "--host-port N",
        ) from error
