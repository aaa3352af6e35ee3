"""What a connection may cost before it has shown a token: bytes, parts, time and its number, on
people's and agents' doors alike."""

import asyncio
import contextlib
import itertools
import json
import os
import select
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import psutil
import pytest

from allranks.agent.network import ports
from allranks.http_limits import connection_limit, header_limits
from tests.server.serving import Served, held_to, served
from tests.support import until

HOST = "127.0.0.2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("strangers") / "h") as found:
        yield found


def connected(server: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", httpx.URL(server.url).port), 20)


def answer(line: socket.socket, said: bytes) -> bytes:
    """Send it all, if that can be; what comes back until the connection is closed."""
    found = b""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        line.sendall(said)
    with contextlib.suppress(ConnectionResetError):
        while piece := line.recv(1 << 16):
            found += piece
    return found


START = b"GET /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\n"
TOO_MUCH = {
    "many headers": (START + b"a: b\r\n" * 1000, b"431"),
    "large headers": (START + b"a: %s\r\n" % (b"x" * 8000) * 10, b"431"),
    "one endless header": (START + b"a: " + b"x" * 80_000, b"431"),
    "an endless name": (START + b"x" * 80_000, b"431"),
    "a long address": (b"GET /%s HTTP/1.1\r\n" % (b"x" * 20_000), b"414"),
    "an endless address": (b"GET /" + b"x" * 300_000, b"414"),
    "no HTTP": (b"\0" * 100, b"400"),
    "line breaks": (b"\r\n" * 200_000, b"431"),
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_a_head_that_is_too_much_is_refused_at_once(server: Served, what: str) -> None:
    said, status = TOO_MUCH[what]
    began = time.monotonic()
    with connected(server) as line:
        told = answer(line, said)
    assert time.monotonic() - began < 5.0
    if told:  # else the connection was reset, with more on its way
        assert told.startswith(b"HTTP/1.1 " + status), told
        assert json.loads(told.partition(b"\r\n\r\n")[2])["hint"]


def test_what_is_no_request_is_not_called_large(server: Served) -> None:
    with connected(server) as line:
        told = answer(line, b"no request\r\n\r\n")
    assert json.loads(told.partition(b"\r\n\r\n")[2])["error"] == "usage"


def test_who_hangs_up_within_a_body_leaves_no_stack_trace(
    server: Served, caplog: pytest.LogCaptureFixture
) -> None:
    mine = server.as_(server.token())
    head = "POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\n"
    head += f"authorization: {mine['authorization']}\r\n\r\n"
    with connected(server) as line:
        line.sendall(head.encode() + b"x")
    assert server.people.get("/api/v1/jobs", headers=mine).status_code == 200
    assert "Traceback" not in caplog.text


def test_routes_that_are_not_there_are_told_in_json(server: Served) -> None:
    mine = server.as_(server.token())
    told = server.people.get("/api/v1/jobs/", headers=mine)
    assert (told.status_code, told.json()["error"]) == (404, "not_found")
    told = server.people.delete("/api/v1/jobs", headers=mine)
    assert (told.status_code, "allow" in told.headers) == (405, True)


def test_a_head_of_common_size_is_not(server: Served) -> None:
    more = {f"x-{number}": "v" * 400 for number in range(100)}
    assert server.people.get("/api/v1/jobs", headers=more).status_code == 200
    assert server.people.get("/api/v1/jobs?name=" + "x" * 12_000).status_code == 200
    one = {"x-one": "v" * 60_000}
    for _ in range(3):  # on the same connection
        assert server.people.get("/api/v1/jobs", headers=one).status_code == 200
    content, kind = b" " * (1 << 20) + b"[]", {"content-type": "application/json", **one}
    told = server.people.post("/api/v1/blobs/missing", content=content, headers=kind)
    assert told.status_code == 200


def test_parts_after_the_body_are_bounded_as_those_before_it(server: Served) -> None:
    for trailer in (b"a: b\r\n" * 1000, b"a: " + b"x" * 400_000):
        with connected(server) as line:
            head = b"POST /nowhere HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n"
            told = answer(line, head + b"\r\n1\r\nx\r\n0\r\n" + trailer)
            assert b"HTTP/1.1 401" in told or not told


def test_requests_that_do_not_wait_for_answers_are_bounded(server: Served) -> None:
    with connected(server) as line:
        told = answer(line, (START + b"\r\n") * 5000)
    assert told.count(b"HTTP/1.1 401") <= header_limits.PIPELINED + 1


def test_without_a_token_a_body_is_not_kept(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(header_limits, "UNREAD", 1 << 20)
    for path in (b"/api/v1/blobs/" + b"0" * 64, b"/agent/v1/0/logs/1/0?offset=0", b"/mlflow/x"):
        with connected(server) as line:
            head = b"PUT %s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 99999999\r\n\r\n" % path
            told = answer(line, head + b"x" * (32 << 20))
            assert not told or told.startswith((b"HTTP/1.1 401", b"HTTP/1.1 413"))


@pytest.mark.medium
def test_an_address_has_so_many_connections_and_gets_them_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limit, "PER_ADDRESS", 8)
    with served(tmp_path / "h") as server:
        assert server.people.get("/api/v1/jobs").status_code == 200
        # One person takes half of them.
        tokens = itertools.cycle((server.token(), token_of(server, "a"), token_of(server, "b")))
        server.people.close()  # it has one
        address = ("127.0.0.1", httpx.URL(server.url).port)
        until(lambda: answered(server), 20)
        lines = [socket.create_connection(address, 20) for _ in range(30)]
        closed = [line for line in lines if is_closed(line)]
        assert len(closed) >= 20

        until(lambda: answered(server), 20)  # who has asked nothing makes room

        head = b"POST /api/v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n"

        def is_full() -> bool:  # of requests that run
            lines.append(socket.create_connection(address, 20))
            with contextlib.suppress(OSError):
                shown = server.as_(next(tokens))["authorization"]
                lines[-1].sendall(head + f"authorization: {shown}\r\n\r\n".encode())
            return not answered(server)

        until(is_full, 20)
        with socket.create_connection(address, 20, (HOST, 0)) as line:  # another has its own
            assert answer(line, START + b"connection: close\r\n\r\n").startswith(b"HTTP/1.1 401")
        for line in lines:
            line.close()
        until(lambda: answered(server), 20)
        monkeypatch.setattr(header_limits, "HEAD", 0.5)
        lines = [socket.create_connection(address, 20) for _ in range(30)]
        until(lambda: answered(server), 20)  # who says nothing is hung up on, and makes room
        for line in lines:
            line.close()


def token_of(server: Served, name: str) -> str:
    told = server.people.post("/api/v1/tokens", json={"name": name, "role": "member"})
    return str(told.json()["token"])


# What strangers may leave open for as long as they like.
LEFT_OPEN = {
    "nothing": b"",
    "half a hello": b"\x16\x03\x01\x02\x00\x01",
    "an answered request, and half its body": None,
    "an answered request": None,
}


@pytest.mark.medium
@pytest.mark.parametrize("what", LEFT_OPEN)
def test_strangers_hold_no_connection_that_another_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Under TLS, from one address and from many."""
    monkeypatch.setattr(connection_limit, "PER_ADDRESS", 8)
    monkeypatch.setattr(connection_limit, "MOST", 24)
    context = ssl._create_unverified_context()
    hold = ports.hold(1)
    (port,) = ports.numbers(hold)
    ports.release(hold)
    with served(tmp_path / "h") as server:
        held_to(server.people.put("/api/v1/server/front", json={"host": HOST, "port": port}))

        def connection(address: int, sent: bytes | None) -> socket.socket:
            line = socket.create_connection((HOST, port), 20, (f"127.0.1.{address}", 0))
            if sent is not None:
                line.sendall(sent)
                return line
            line = context.wrap_socket(line)
            head = b"POST /api/v1/jobs HTTP/1.1\r\nhost: %s\r\ncontent-length: 9\r\n\r\n"
            line.sendall(head % HOST.encode() + b"x" * (5 if "half" in what else 9))
            assert line.recv(1 << 16).startswith(b"HTTP/1.1 401")
            return line

        for addresses in (1, 20):
            lines = [connection(1 + n % addresses, LEFT_OPEN[what]) for n in range(60)]
            with connection(1, None):
                closed, _, _ = select.select(lines, [], [], 0)
                assert len(closed) >= 60 - 24
            for line in lines:
                line.close()


def is_closed(line: socket.socket) -> bool:
    line.settimeout(0.1)
    try:
        return line.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def answered(server: Served) -> bool:
    try:
        return httpx.get(f"{server.url}/none", trust_env=False, timeout=5).status_code == 401
    except httpx.HTTPError:
        return False


@pytest.mark.medium
def test_all_of_it_holds_under_tls(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agents' door and the one for people on other hosts are made alike."""
    monkeypatch.setattr(connection_limit, "PER_ADDRESS", 8)
    held = ports.hold(1)
    (port,) = ports.numbers(held)
    ports.release(held)
    told = server.people.put("/api/v1/server/front", json={"host": HOST, "port": port})
    assert told.status_code == 200
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    for said, _ in TOO_MUCH.values():
        with context.wrap_socket(socket.create_connection((HOST, port), 20)) as line:
            try:
                found = answer(line, said)
            except ssl.SSLError:
                found = b""
            assert not found or found.startswith(b"HTTP/1.1 4")
    # Connections that do not even begin TLS are counted.
    lines = [socket.create_connection((HOST, port), 20) for _ in range(30)]
    assert sum(map(is_closed, lines)) >= 20
    for line in lines:
        line.close()
    held_to(server.people.put("/api/v1/server/front", json={"host": None}))


def test_hundreds_of_agents_of_one_address_wait_at_once(server: Served) -> None:
    server.submit("many")
    shown = f"authorization: Bearer {server.auth.agent_token('many', 1)}\r\nhost: localhost\r\n"
    asked = f"GET /agent/v1/0/orders?attempt=1&known= HTTP/1.1\r\n{shown}\r\n".encode()

    async def one() -> bytes:
        port = httpx.URL(server.url).port
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(asked)
        try:
            return await asyncio.wait_for(reader.read(12), 60)
        finally:
            writer.close()

    async def several() -> list[bytes]:
        return await asyncio.gather(*(one() for _ in range(300)))

    assert set(asyncio.run(several())) == {b"HTTP/1.1 200"}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["short lines", "one header"])
def test_memory_does_not_grow(tmp_path: Path, what: str) -> None:
    """A server of its own, and what took a former one to gigabytes."""
    env = {**os.environ, "ALLRANKS_HOME": str(tmp_path / "h")}
    command = [sys.executable, "-m", "allranks.server", "--ready-fd", "1"]
    child = subprocess.Popen(command, env=env, stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None
        port = httpx.URL(json.loads(child.stdout.read())["url"]).port
        address, process = ("127.0.0.1", port), psutil.Process(child.pid)
        until(
            lambda: httpx.get(f"http://127.0.0.1:{port}/none", trust_env=False).status_code == 401
        )
        before, most = process.memory_info().rss, 0
        threads = [threading.Thread(target=attack, args=(address, what)) for _ in range(4)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            most = max(most, process.memory_info().rss)
            time.sleep(0.02)
        assert most - before < 30 << 20
        assert process.memory_info().rss - before < 30 << 20
    finally:
        child.terminate()
        child.wait(30)
        assert child.stdout is not None
        child.stdout.close()


def attack(address: tuple[str, int], what: str) -> None:
    """50 MB, again on a new connection whenever one is closed."""
    piece, left = (b"a: b\r\n" if what == "short lines" else b"xxxxxx") * 10_000, 50 << 20
    while left > 0:
        with socket.create_connection(address, 20) as line:
            try:
                line.sendall(START + b"x: ")
                while left > 0:
                    line.sendall(piece)
                    left -= len(piece)
            except (BrokenPipeError, ConnectionResetError):
                left -= len(piece)
