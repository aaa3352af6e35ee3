"""What strangers of other machines meet: the router's listener with TLS."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allranks import folder_trees
from allranks.http_limits import connection_limit, header_limits
from allranks.serve import front as serve_front
from allranks.serve.front import Front
from allranks.serve.router import Router
from allranks.serve.table import Site
from allranks.server.http import agents_listener
from tests.support import free_port

ASK = b"GET /endpoints/e/score HTTP/1.1\r\nhost: localhost\r\n\r\n"


class Stranger:
    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return await asyncio.open_connection("127.0.0.1", self.port, ssl=context)

    async def ask(self, request: bytes = ASK) -> bytes:
        """The first line of the answer."""
        reader, writer = await self.connect()
        writer.write(request)
        try:
            return await asyncio.wait_for(reader.readline(), 10)
        finally:
            writer.transport.abort()


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    folder_trees.write_file(tmp_path / "c.pem", agents_listener._new_certificate())
    return tmp_path / "c.pem"


@pytest.fixture
def play(tmp_path: Path, certificate: Path) -> Callable[..., None]:
    def run(scenario: Callable[[Front, Stranger], Awaitable[None]]) -> None:
        async def main() -> None:
            router, port = Router(tmp_path), free_port()
            router.change([Site("e", None, {}, {}, ())])
            front = Front(router, 1, lambda: None)
            await front.keep({"host": "127.0.0.1", "port": port, "certificate": str(certificate)})
            try:
                await scenario(front, Stranger(port))
            finally:
                await front.close()

        asyncio.run(main())

    return run


def test_without_keys_no_other_machine_is_answered(play):
    """Whatever it says in `Host`: that is a check of browsers, not of callers."""

    async def scenario(front: Front, stranger: Stranger) -> None:
        assert (await stranger.ask()).startswith(b"HTTP/1.1 421")

    play(scenario)


def test_a_renewed_certificate_is_shown(play, certificate):
    async def scenario(front: Front, stranger: Stranger) -> None:
        port = front.port
        before = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        folder_trees.write_file(certificate, agents_listener._new_certificate())
        order = {"host": "127.0.0.1", "port": port, "certificate": str(certificate), "renewed": 2.0}
        await front.keep(order)
        after = await asyncio.to_thread(ssl.get_server_certificate, ("127.0.0.1", port))
        assert before != after

    play(scenario)


def test_who_sends_nothing_is_not_kept(play, monkeypatch):
    monkeypatch.setattr(header_limits, "HEAD", 0.2)
    monkeypatch.setattr(connection_limit, "PER_ADDRESS", 2)

    async def scenario(front: Front, stranger: Stranger) -> None:
        silent = [await stranger.connect() for _ in range(2)]
        for reader, writer in silent:
            with contextlib.suppress(ConnectionResetError):
                assert await asyncio.wait_for(reader.read(), 10) == b""
            writer.transport.abort()
        assert (await stranger.ask()).startswith(b"HTTP/1.1 421")

    play(scenario)


def test_who_has_asked_nothing_makes_room(play, monkeypatch):
    monkeypatch.setattr(connection_limit, "PER_ADDRESS", 2)

    async def scenario(front: Front, stranger: Stranger) -> None:
        silent = [await stranger.connect() for _ in range(2)]
        assert (await stranger.ask()).startswith(b"HTTP/1.1 421")
        reader, _ = silent[0]
        with contextlib.suppress(ConnectionResetError):
            assert await asyncio.wait_for(reader.read(), 10) == b""
        for _, writer in silent:
            writer.transport.abort()

    play(scenario)


def test_an_idle_connection_is_closed_after_its_last_answer(play):
    async def scenario(front: Front, stranger: Stranger) -> None:
        assert front._server is not None
        front._server.config.timeout_keep_alive = 0.5  # type: ignore[assignment]
        reader, writer = await stranger.connect()
        ends = []
        for _ in range(3):
            writer.write(ASK)
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
            length = int(head.lower().partition(b"content-length: ")[2].split()[0])
            await asyncio.wait_for(reader.readexactly(length), 10)
            ends.append(asyncio.get_running_loop().time())
        assert await asyncio.wait_for(reader.read(), 10) == b""
        assert asyncio.get_running_loop().time() - ends[-1] > 0.4
        writer.transport.abort()

    play(scenario)


def test_a_name_that_takes_long_stops_nobody(play, monkeypatch, certificate):
    resolve, known = socket.getaddrinfo, threading.Event()

    def slow(*arguments, **options):
        assert known.wait(20)
        return resolve(*arguments, **options)

    async def scenario(front: Front, stranger: Stranger) -> None:
        monkeypatch.setattr(serve_front, "_SOON", 0.01)
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        port = free_port()
        order = {"host": "localhost", "port": port, "certificate": str(certificate)}
        await asyncio.wait_for(front.keep(order), 10)
        assert front.port is None
        known.set()
        while front.port != port:
            await asyncio.sleep(0)

    play(scenario)
