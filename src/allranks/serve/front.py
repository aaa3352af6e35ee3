"""The router for other machines: the same application, over TLS."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from allranks.http_limits.connection_limit import MOST, Listener
from allranks.http_limits.server import SecondServer
from allranks.serve.protocol import config
from allranks.serve.router import IS_PUBLIC, Router

log = logging.getLogger("allranks.front")

# Seconds between two tries to listen, and that the server waits for the first one.
_RETRY, _SOON = 10.0, 1.0


class Front:
    """``port`` is where it listens; None: nowhere. ``changed`` is called when that has changed. For
    the router's event loop."""

    def __init__(self, router: Router, grace: int, changed: Callable[[], None]) -> None:
        self._router, self._grace, self._changed = router, grace, changed
        self._order: Any = None
        self._opening: asyncio.Task[None] | None = None
        self._server: SecondServer | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port: int | None = None

    async def keep(self, order: Any) -> None:
        """Listen as the server says, `{"host", "port", "certificate", "renewed"}`, or nowhere.
        Returns when it does, or soon: what did not work is tried again, and told once in the
        router's log."""
        if order == self._order:
            return
        self._order = order
        self._stop()
        self._changed()
        if order is not None:
            where = (order["host"], order["port"], order["certificate"])
            self._opening = asyncio.create_task(self._try_to_open(*where))
            await asyncio.wait({self._opening}, timeout=_SOON)

    def _stop(self) -> None:
        self.port = None
        if self._opening is not None:
            self._opening.cancel()
        if self._server is not None:
            self._server.leave()
            self._server = None

    async def _try_to_open(self, host: str, port: int, certificate: str) -> None:
        before = ""
        while self.port is None:
            try:
                await self._open(host, port, certificate)
                self._changed()
            except (OSError, ValueError, OverflowError) as error:
                trouble = f"cannot listen for other machines at port {port}: {error}"
                if trouble != before:
                    log.error(trouble)
                before = trouble
                await asyncio.sleep(_RETRY)

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await self._router({**scope, IS_PUBLIC: True}, receive, send)

    async def _open(self, host: str, port: int, certificate: str) -> None:
        options = config(self._app, self._grace, certificate=certificate, most=MOST)
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = addresses[0]
        listener = Listener(family, address[:2])
        self.port = port
        self._server = SecondServer(options)
        task = asyncio.create_task(self._server.serve([listener]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Returns when all is answered."""
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
