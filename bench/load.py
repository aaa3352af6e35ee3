"""A load generator: HTTP/1.1 over kept connections, in this process."""

from __future__ import annotations

import asyncio
import gc
import re
from collections.abc import Coroutine
from typing import Any, NamedTuple
from urllib.parse import urlsplit

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Answer(NamedTuple):
    """``status`` is 0 if the connection broke."""

    status: int
    head: bytes
    body: bytes
    seconds: float

    def header(self, name: str) -> str:
        found = re.search(rb"\r\n%s: *([^\r]*)" % name.encode(), self.head, re.IGNORECASE)
        return found[1].decode() if found else ""


class _Connection(asyncio.Protocol):
    def __init__(self) -> None:
        self._data = b""
        self._answer: asyncio.Future[tuple[bytes, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    async def ask(self, request: bytes) -> tuple[bytes, bytes]:
        self._data = b""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, blank, body = self._data.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        is_whole = blank and length is not None and len(body) >= int(length[1])
        if is_whole and self._answer is not None and not self._answer.done():
            self._answer.set_result((head, body))

    def connection_lost(self, error: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(str(error)))


class Client:
    """Sends one request again and again. Of one event loop."""

    def __init__(self, url: str, body: bytes) -> None:
        self._at, self._body = urlsplit(url), body
        self._idle: list[_Connection] = []

    async def ask(self, due: float | None = None, **headers: str) -> Answer:
        """Its seconds count from ``due``, a time of the loop."""
        loop = asyncio.get_running_loop()
        began = loop.time() if due is None else due
        lines = [f"POST {self._at.path} HTTP/1.1", f"host: {self._at.netloc}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        lines += [f"content-length: {len(self._body)}", "", ""]
        request = "\r\n".join(lines).encode() + self._body
        try:
            while self._idle and self._idle[-1].transport.is_closing():
                self._idle.pop()  # idle for longer than the server keeps it
            if self._idle:
                connection = self._idle.pop()
            else:
                host, port = self._at.hostname, self._at.port
                _, connection = await loop.create_connection(_Connection, host, port)  # type: ignore[arg-type]
            head, body = await connection.ask(request)
        except OSError as error:
            return Answer(0, b"", str(error).encode(), loop.time() - began)
        if not connection.transport.is_closing():
            self._idle.append(connection)
        return Answer(int(head[9:12]), head, body, loop.time() - began)

    def close(self) -> None:
        for connection in self._idle:
            connection.transport.abort()


def _run(load: Coroutine[Any, Any, list[Answer]]) -> list[Answer]:
    """Without garbage collection: with all these answers it stops the generator for tens of
    milliseconds, which would count as time of the server."""
    gc.disable()
    try:
        return asyncio.run(load)
    finally:
        gc.enable()


def steady(
    url: str, rate: float, count: int, body: bytes = b"{}", warm_up: float = 0.0
) -> list[Answer]:
    """An open loop: ``rate`` requests a second, whether or not those before were answered.
    ``warm_up``: seconds before, whose answers are left out: all connections are opened then."""

    async def send() -> list[Answer]:
        client, loop = Client(url, body), asyncio.get_running_loop()
        began = loop.time()
        several = []
        first = int(warm_up * rate)
        for number in range(first + count):
            due = began + number / rate
            if (wait := due - loop.time()) > 0:
                await asyncio.sleep(wait)
            several.append(loop.create_task(client.ask(due)))
        answers = await asyncio.gather(*several)
        client.close()
        return answers[first:]

    return _run(send())


def saturated(
    url: str, callers: int, *, seconds: float = 3600.0, count: int = 1 << 40, body: bytes = b"{}"
) -> list[Answer]:
    """A closed loop: each caller sends the next request when it has its answer."""

    async def send() -> list[Answer]:
        client, loop = Client(url, body), asyncio.get_running_loop()
        until = loop.time() + seconds
        answers: list[Answer] = []
        left = count

        async def call() -> None:
            nonlocal left
            while left > 0 and loop.time() < until:
                left -= 1
                answers.append(await client.ask())

        await asyncio.gather(*(call() for _ in range(callers)))
        client.close()
        return answers

    return _run(send())
