"""Answers of endpoints, which are programs of others."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import pytest

from allranks.errors import ServerError
from allranks.ui.pages import endpoints


async def _ask(head: bytes, body: bytes, forever: bool) -> tuple[endpoints.Answer, str | None]:
    """What the page has of a program that sends so, and the example that it gets of it."""

    handlers: list[asyncio.Task[None] | None] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handlers.append(asyncio.current_task())
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n" + body)
            while forever and body:
                writer.write(body)
                await writer.drain()
            if not forever:
                writer.write_eof()
            await reader.read()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    uri = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/score"
    try:
        async with server, httpx.AsyncClient(trust_env=False) as client:
            made = {"scoring_uri": uri, "deployments": []}
            example = await endpoints._example(None, client, made)  # type: ignore[arg-type]
            return await endpoints._answer(client, uri, "{}", ""), example
    finally:
        await asyncio.gather(*filter(None, handlers))


def test_an_answer_without_end_is_shown_in_part():
    shown, example = asyncio.run(_ask(b"content-encoding: gzip\r\n", bytes(1 << 16), True))
    assert shown.text == "\0" * endpoints._SHOWN
    assert example is None


def test_json_that_nests_deeply_is_shown_as_text():
    shown, example = asyncio.run(_ask(b"", b"[" * 100_000, False))
    assert shown.text == "[" * 100_000
    assert example is None


def test_an_answer_that_never_comes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(endpoints, "_ANSWER", 0.3)
    monkeypatch.setattr(endpoints, "_EXAMPLE", 0.3)
    with pytest.raises(ServerError, match="does not answer"):
        asyncio.run(_ask(b"", b"", True))
