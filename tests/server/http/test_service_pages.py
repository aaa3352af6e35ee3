"""Pages of services at host names of their own: who gets in, and what the service is sent."""

from __future__ import annotations

import hashlib
import http.server
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.serving import Served, served

pytestmark = pytest.mark.medium

LABEL = f"service-{'a' * 32}"


class Echo(http.server.BaseHTTPRequestHandler):
    """Answers with the head of the request; a WebSocket with what it sends."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers["upgrade"]:
            self.wfile.write(b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n")
            self.wfile.write(self.connection.recv(100).upper())
            self.close_connection = True
            return
        body = f"{self.requestline}\n{self.headers}".encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return ""

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    home = tmp_path / f"a home of {'long name ' * 12}"
    with served(home) as found:
        folder = home / "ui" / "services" / LABEL
        folder.mkdir(parents=True)
        (folder / "secret").write_text("s3cret")
        (folder / hashlib.sha256(b"once").hexdigest()).touch()
        handle = os.open(folder, os.O_RDONLY)
        path = f"/proc/self/fd/{handle}/socket"
        with socketserver.ThreadingUnixStreamServer(path, Echo) as service:
            threading.Thread(target=service.serve_forever, daemon=True).start()
            yield found
            service.shutdown()
        os.close(handle)


def asked(server: Served, path: str, *lines: str, host: str = f"{LABEL}.localhost:1") -> str:
    """The whole answer to a request."""
    _, _, address = server.url.partition("//")
    name, _, port = address.partition(":")
    head = "\r\n".join([f"GET {path} HTTP/1.1", f"host: {host}", *lines, "", ""])
    with socket.create_connection((name, int(port)), 20) as connection:
        connection.sendall(head.encode())
        with connection.makefile("rb") as file:
            first = file.readline()
            if b" 101 " in first:
                connection.sendall(b"data")
            return (first + file.read()).decode()


def test_a_code_lets_in_once_and_the_cookie_stays_here(server: Served) -> None:
    closed = "connection: close"
    for cookie in ("x: y", "cookie: allranks_service=", "cookie: allranks_service=s3crets"):
        assert asked(server, "/", cookie, closed).startswith("HTTP/1.1 403")
    entered = asked(server, "/.allranks/enter?code=once", closed)
    assert entered.startswith("HTTP/1.1 303")
    assert "allranks_service=s3cret; HttpOnly" in entered
    for code in ("once", "", "..", "%00"):
        again = asked(server, f"/.allranks/enter?code={code}", closed)
        assert again.startswith("HTTP/1.1 403")
    cookie = "cookie: a=1; allranks_service=s3cret; b=2"
    answer = asked(server, "/x%20y?q=1", cookie, "origin: http://o", closed)
    assert answer.startswith("HTTP/1.1 200")
    assert "GET /x%20y?q=1 HTTP/1.1" in answer
    assert "cookie: a=1; b=2\n" in answer
    assert "s3cret" not in answer
    assert f"host: {LABEL}.localhost:1\norigin: http://o" in answer
    # A WebSocket is led as it is.
    upgrade = ("connection: upgrade", "upgrade: websocket")
    assert asked(server, "/ws", cookie, *upgrade).endswith("\r\n\r\nDATA")
    assert asked(server, "/ws", *upgrade, closed).startswith("HTTP/1.1 403")


@pytest.mark.parametrize("host", [f"service-{'b' * 32}.localhost", f"{LABEL}.localhost.evil.org"])
def test_other_names_lead_nowhere(server: Served, host: str) -> None:
    cookie = "cookie: allranks_service=s3cret"
    answer = asked(server, "/", cookie, "connection: close", host=host)
    assert answer.startswith("HTTP/1.1 403")
    assert "GET / " not in answer
