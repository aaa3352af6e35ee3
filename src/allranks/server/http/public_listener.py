"""The server on an address that others can call: all of its routes, under TLS, for those with a
token.

On loopback the owner and local agents find it always; this stands open beside that when somebody
asked for it, and again whenever the home's server starts.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
from collections.abc import Callable
from typing import Any, NamedTuple

import uvicorn

from allranks.errors import AllranksError, UsageError
from allranks.server.http.agents_listener import AgentsListener, Server, config, write
from allranks.server.http.connection_limit import Listener
from allranks.server.http.host_header_check import HostNames
from allranks.settings import Home

log = logging.getLogger("allranks.front")

App = Callable[..., Any]

PORT = 7443
# The most that are spoken to at once.
_MOST = 1024


class PublicAddress(NamedTuple):
    """``host`` is a name or an address of this machine, 0.0.0.0 all of them. ``certificate`` is a
    file of a key and its certificates; empty: the home's own. Without ``tls`` whoever listens on
    the way reads everything, tokens too."""

    host: str
    port: int = PORT
    certificate: str = ""
    tls: bool = True


class PublicListener:
    """All of it is for the server's event loop, but for ``kept``."""

    def __init__(self, home: Home, door: AgentsListener, names: HostNames) -> None:
        self._home, self._door, self._names = home, door, names
        self._serving: tuple[uvicorn.Server, asyncio.Task[None]] | None = None
        self.app: App | None = None

    def kept(self) -> PublicAddress | None:
        return load(self._home)

    async def open_again(self) -> None:
        """Where it was when the last server ended; what hinders it is in the log."""
        where = self.kept()
        if where is not None:
            try:
                await self.open(where)
            except AllranksError as error:
                log.error("%s (%s)", error, error.hint)

    async def open(self, where: PublicAddress) -> dict[str, Any]:
        """Stand open there and nowhere else, from now on; what others need to find it."""
        made = self._config(where)
        listening = await self._in_its_place(where)
        self._names.more.add(where.host.lower())
        server = Server(made)
        self._serving = (server, asyncio.create_task(server.serve(sockets=[listening])))
        keep(self._home, where)
        return told(where, self.fingerprint(where))

    async def _in_its_place(self, where: PublicAddress) -> socket.socket:
        """Listen there, and then no more where it was; what is refused leaves all as it is."""
        before = self.kept()
        try:
            listening = _listen(where)
        except UsageError:
            if self._serving is None or before is None or before.port != where.port:
                raise
            await self.close()  # it may be itself that is in the way
            try:
                return _listen(where)
            except UsageError:
                await self.open(before)
                raise
        await self.close()
        return listening

    async def close(self, *, for_good: bool = False) -> None:
        if self._serving is not None:
            self._serving[0].should_exit = True
            await asyncio.gather(self._serving[1], return_exceptions=True)
            self._serving = None
        if for_good:
            self._home.front.unlink(missing_ok=True)

    def fingerprint(self, where: PublicAddress) -> str:
        """Of the home's certificate, which nobody else vouches for; empty where another counts."""
        return self._door.fingerprint if where.tls and not where.certificate else ""

    def _config(self, where: PublicAddress) -> uvicorn.Config:
        assert self.app is not None
        certificate = where.certificate or str(self._door.certificate())
        try:
            return config(self.app, certificate if where.tls else None, _MOST)
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the certificate cannot be used: {error}",
                where=certificate,
                hint="a PEM file with the key, the server's certificate and those that sign it",
            ) from error


def load(home: Home) -> PublicAddress | None:
    """Where it stands open, or stood last."""
    with contextlib.suppress(OSError, ValueError, TypeError):
        return PublicAddress(**json.loads(home.front.read_text()))
    return None


def keep(home: Home, where: PublicAddress) -> None:
    write(home.front, json.dumps(where._asdict()).encode())


def told(where: PublicAddress, fingerprint: str) -> dict[str, Any]:
    """What others need to find it."""
    host = socket.gethostname() if where.host in ("0.0.0.0", "::") else where.host
    host = f"[{host}]" if ":" in host else host
    url = f"{'https' if where.tls else 'http'}://{host}:{where.port}"
    return {"url": url, "fingerprint": fingerprint}


def _listen(where: PublicAddress) -> socket.socket:
    try:
        found = socket.getaddrinfo(where.host, where.port, type=socket.SOCK_STREAM)
        family, _, _, _, address = found[0]
        return Listener(family, address)
    except (OSError, UnicodeError) as error:
        raise _not_there(where, error) from error


def _not_there(where: PublicAddress, error: Exception) -> UsageError:
    said = (getattr(error, "strerror", None) or str(error)).lower()
    return UsageError(
        f"it cannot be listened on: {said}",
        where=f"{where.host}:{where.port}",
        hint="an address of this machine (`ip address`), or 0.0.0.0 for all; another port: "
        "--host-port N",
    )
