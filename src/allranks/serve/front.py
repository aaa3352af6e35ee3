"""The router for other machines: the same application, over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import uvicorn

from allranks.http_limits.connection_limit import MOST, Listener
from allranks.serve.protocol import Bounded
from allranks.serve.router import IS_PUBLIC, Router

log = logging.getLogger("uvicorn.error")

# Seconds between two tries to listen, and that the server waits for the first one.
_RETRY, _SOON = 10.0, 1.0


class _Server(uvicorn.Server):
    """One beside the router's own in this process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: that one does."""
        yield


class Front:
    """``port`` is where it listens; None: nowhere. ``changed`` is called when that has changed. For
    the router's event loop."""

    def __init__(self, router: Router, grace: int, changed: Callable[[], None]) -> None:
        self._router, self._grace, self._changed = router, grace, changed
        self._order: Any = None
        self._opening: asyncio.Task[None] | None = None
        self._server: _Server | None = None
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
            for listener in getattr(self._server, "servers", ()):  # none before it has started
                listener.close()
            self._server.should_exit = True
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
        config = uvicorn.Config(
            self._app,
            loop="asyncio",  # uvloop accepts connections without calling Listener.accept
            http=Bounded,
            proxy_headers=False,
            interface="asgi3",  # uvicorn takes a bound method for ASGI 2
            ssl_certfile=certificate,
            log_config=None,
            access_log=False,
            limit_concurrency=MOST,
            timeout_keep_alive=75,
            timeout_graceful_shutdown=self._grace,
            lifespan="off",
        )
        config.load()
        loop = asyncio.get_running_loop()
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = addresses[0]
        listener = Listener(family, address[:2])
        self.port = port
        self._server = _Server(config)
        task = asyncio.create_task(self._server.serve([listener]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Returns when all is answered."""
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
