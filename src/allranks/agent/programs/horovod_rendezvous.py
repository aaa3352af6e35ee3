"""The rendezvous store of a Horovod job: keys under scopes, put, got and deleted over HTTP.

One file, standard library only, started by node 0's agent as ``store.py FD`` with a bound socket;
it lives as long as the attempt. Horovod's gloo controller puts ``/scope/key``, asks for others'
until they are there (404 until then), and deletes what a rank had when it leaves.
"""

from __future__ import annotations

import socket
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

MOST = 64 << 20


class Handler(BaseHTTPRequestHandler):
    """Requests of one rank."""

    protocol_version = "HTTP/1.1"
    kept: ClassVar[dict[str, bytes]] = {}
    lock = threading.Lock()

    def do_GET(self) -> None:
        with self.lock:
            value = self.kept.get(self.path)
        self._answer(404 if value is None else 200, value or b"")

    def do_PUT(self) -> None:
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > MOST:
            self.close_connection = True
            self._answer(411, b"")
            return
        value = self.rfile.read(int(size))
        with self.lock:
            self.kept[self.path] = value
        self._answer(200, b"")

    def do_DELETE(self) -> None:
        with self.lock:
            self.kept.pop(self.path, None)
        self._answer(200, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Ranks ask many times a second; nobody wants to read it."""


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


def serve(bound: socket.socket) -> None:
    """Answer on the socket until ended."""
    server = Server(("", 0), Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = bound
    server.server_activate()
    server.serve_forever()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
