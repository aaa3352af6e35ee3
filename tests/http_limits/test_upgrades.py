"""Requests that offer to go on with another protocol, to servers that do not."""

import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from allranks.http_limits.connection_limit import Listener
from allranks.http_limits.header_limits import Patient
from allranks.serve.protocol import Bounded
from tests.support import until

# As curl --http2 and Java's HttpClient send it.
OFFER = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQ\r\n"
BODY = b"0123456789" * 10_000
HEAD = b"POST /%d HTTP/1.1\r\nhost: localhost\r\n"
LENGTH = b"content-length: %d\r\n" % len(BODY)


async def echo(scope: Any, receive: Any, send: Any) -> None:
    """Answer with the path, the number of bytes of the body, and whether they are those sent."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    text = b"%s %d %d" % (scope["raw_path"], len(body), body == BODY)
    length = (b"content-length", b"%d" % len(text))
    await send({"type": "http.response.start", "status": 200, "headers": [length]})
    await send({"type": "http.response.body", "body": text})


@pytest.fixture(scope="module", params=[Patient, Bounded])
def port(request: pytest.FixtureRequest) -> Iterator[int]:
    listening = Listener(socket.AF_INET, ("127.0.0.1", 0))
    config = uvicorn.Config(
        echo, http=request.param, loop="asyncio", log_config=None, lifespan="off", interface="asgi3"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    until(lambda: server.started)
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join(30)


def answers(port: int, *pieces: bytes, count: int) -> list[bytes]:
    """The bodies of so many answers on one connection."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            connection.sendall(piece)
        bodies, received = list[bytes](), b""
        while len(bodies) < count or not bodies[-1]:
            piece = connection.recv(1 << 16)
            assert piece, received
            received += piece
            parts = received.split(b"HTTP/1.1 200 OK\r\n")[1:]
            bodies = [part.partition(b"\r\n\r\n")[2] for part in parts]
    return bodies


CHUNKS = b"".join(b"2710\r\n%s\r\n" % BODY[at : at + 10_000] for at in range(0, 100_000, 10_000))
FRAMINGS = {
    "length": LENGTH + b"\r\n" + BODY,
    "chunks": b"transfer-encoding: chunked\r\n\r\n" + CHUNKS + b"0\r\n\r\n",
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("cut", [0, 1, 10, 90_000])
def test_the_body_arrives_and_the_connection_goes_on(port: int, framing: str, cut: int) -> None:
    asked = HEAD % 1 + OFFER + FRAMINGS[framing]
    at = asked.index(b"\r\n\r\n") + 4 + cut if cut else 50
    more = [HEAD % 2 + OFFER + b"\r\n", HEAD % 3 + LENGTH + b"\r\n" + BODY]
    assert answers(port, asked[:at], asked[at:], *more, count=3) == [
        b"/1 100000 1",
        b"/2 0 0",
        b"/3 100000 1",
    ]


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"allranks-channel", b"nonsense, h2c"])
def test_whatever_is_offered(port: int, protocol: bytes) -> None:
    offer = b"connection: upgrade\r\nupgrade: %s\r\n" % protocol
    assert answers(port, HEAD % 1 + offer + FRAMINGS["length"], count=1) == [b"/1 100000 1"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_that_would_rather_speak_http2(port: int) -> None:
    address = f"http://127.0.0.1:{port}/1"
    command = ["curl", "-sS", "--http2", "--data-binary", "@-", address]
    ended = subprocess.run(command, input=BODY, capture_output=True, timeout=20)
    if b"does not support this" in ended.stderr:
        pytest.skip("this curl has no HTTP/2")
    assert (ended.stdout, ended.stderr) == (b"/1 100000 1", b"")
