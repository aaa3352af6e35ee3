"""What goes to MLflow's socket, and what is left when one of the two sides goes away."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from allranks.server.http.forward import Call, forward


def test_who_goes_away_in_the_middle_of_asking_leaves_nothing_behind(tmp_path: Path) -> None:
    heard = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        try:
            await reader.readexactly(10**6)  # MLflow waits for what was promised
        except (asyncio.IncompleteReadError, ConnectionError) as error:
            heard.append(type(error))
        writer.close()

    async def body() -> AsyncIterator[bytes]:
        yield b"x" * 1000
        raise ConnectionError("the client disconnected")

    async def send(message: object) -> None:
        raise AssertionError(message)

    async def main() -> None:
        path = str(tmp_path / "s")
        async with await asyncio.start_unix_server(serve, path):
            call = Call("PUT", "/a", [], 10**6)
            with pytest.raises(ConnectionError):
                await asyncio.wait_for(forward(path, call, body(), send), 30)
            while not heard:
                await asyncio.sleep(0.01)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n"
ENDLESS = {
    "headers": (OK, b"a: b\r\n"),
    "a header": (OK + b"a: ", b"b"),
    "trailers": (CHUNKED + b"0\r\n", b"a: b\r\n"),
    "an extension": (CHUNKED + b"2;a=", b"b"),
    "early hints": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n"),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_a_job_answers_without_end(tmp_path: Path, what: str) -> None:
    """Its services are read by this server: nothing of them is kept without bound."""
    begin, rest = ENDLESS[what]
    sent = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(begin)
        with contextlib.suppress(ConnectionError):
            while sent < 64 << 20:
                writer.write(rest * 10_000)
                sent += len(rest) * 10_000
                await writer.drain()
        writer.close()

    with pytest.raises(ConnectionError, match=r"too long|early"):
        relay(tmp_path, serve)
    assert sent < 4 << 20


def test_what_comes_before_an_answer_is_not_it(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: a\r\n\r\n" + CHUNKED + b"0\r\n\r\n")
        writer.close()

    messages = relay(tmp_path, serve)
    assert (messages[0]["status"], messages[0]["headers"]) == (200, [])
    assert b"".join(each["body"] for each in messages[1:]) == b"ok"


def test_another_protocol_is_no_answer(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: upgrade\r\n\r\nx")
        writer.close()

    with pytest.raises(ConnectionError):
        relay(tmp_path, serve)


def relay(tmp_path: Path, serve: Any) -> list[Any]:
    """What is sent on of the answer."""
    messages = []

    async def body() -> AsyncIterator[bytes]:
        return
        yield b""

    async def send(message: Any) -> None:
        messages.append(message)

    async def main() -> None:
        path = str(tmp_path / "s")
        async with await asyncio.start_unix_server(serve, path):
            await asyncio.wait_for(forward(path, Call("GET", "/", [], 0), body(), send), 30)

    asyncio.run(main())
    return messages
