"""The router for other machines: the same application, over TLS."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn

from allranks.http_limits.connection_limit import MOST, Listener
from allranks.serve.protocol import Bounded
from allranks.serve.router import IS_PUBLIC, Router

log = logging.getLogger("uvicorn.error")


class _Server(uvicorn.Server):
    """One beside the router's own in this process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none: that one does."""
        yield


class Front:
    """``port`` is where it listens; None: nowhere, with ``trouble`` if it should. For the router's
    event loop."""

    def __init__(self, router: Router, grace: int) -> None:
        self._router, self._grace = router, grace
        self._order: Any = None
        self._server: _Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.port: int | None = None
        self.trouble = ""

    def keep(self, order: Any) -> bool:
        """Listen as the server says, `{"host", "port", "certificate"}`, or nowhere; whether that
        has changed. What did not work is tried again, and told once in the router's log."""
        if order == self._order and not self.trouble:
            return False
        before, self.trouble = self.trouble, ""
        self._order, self.port = order, None
        if self._server is not None:
            for listener in getattr(self._server, "servers", ()):  # none before it has started
                listener.close()
            self._server.should_exit = True
            self._server = None
        if order is not None:
            try:
                self._open(**order)
            except (OSError, ValueError, OverflowError) as error:
                self.trouble = f"cannot listen for other machines at port {order['port']}: {error}"
                if self.trouble != before:
                    log.error(self.trouble)
        return True

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        await self._router({**scope, IS_PUBLIC: True}, receive, send)

    def _open(self, host: str, port: int, certificate: str) -> None:
        config = uvicorn.Config(
            self._app,
            loop="asyncio",  # uvloop accepts connections without calling Listener.accept
            http=Bounded,
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
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = Listener(family, address[:2])
        self.port = port
        self._server = _Server(config)
        task = asyncio.create_task(self._server.serve([listener]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Returns when all is answered."""
        self.keep(None)
        await asyncio.gather(*self._tasks, return_exceptions=True)
