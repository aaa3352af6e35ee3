"""A proxy that records what passes: HTTP requests with their answers, channels, a mailbox.

Each exchange has two numbers of one count of all that happened: when it was sent and when it was
answered. Whatever was answered before another was sent may have caused it.
"""

from __future__ import annotations

import base64
import itertools
import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

# Headers that decide what the answer is. All others are of the client's library.
KEPT = ("range", "upgrade", "content-type", "content-encoding")
# Of a larger body that is no JSON only the size is stored: the agent's code, zeros of our jobs.
LARGEST = 24 << 10


@dataclass
class Exchange:
    """``by``: the token that was shown. ``call``: the command that called, if a client did.
    ``frames``: of a channel, what passed: the number, from whom (`caller` or `server`), bytes."""

    by: str
    call: str
    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    sent: int
    answered: int = 0
    status: int = 0
    type: str = ""
    answer: bytes = b""
    frames: list[tuple[int, str, bytes]] = field(default_factory=list)
    ended: int = 0

    def to_json(self) -> dict[str, Any]:
        data = {**vars(self), "body": text_of(self.body), "answer": text_of(self.answer)}
        data["frames"] = [[number, end, text_of(piece)] for number, end, piece in self.frames]
        kept = ("method", "path", "status", "sent", "answered")
        return {key: value for key, value in data.items() if value or key in kept}


def text_of(data: bytes) -> Any:
    """Bytes for JSON: text where they are, else base64; of large ones the size."""
    if len(data) > LARGEST and data[:1] not in (b"{", b"["):
        return {"size": len(data)}
    try:
        return data.decode()
    except ValueError:
        return {"base64": base64.b64encode(data).decode()}


def bytes_of(text: Any) -> bytes:
    """The reverse of `text_of`; zeros for what was left out."""
    if isinstance(text, dict):
        return base64.b64decode(text["base64"]) if "base64" in text else bytes(text["size"])
    return (text or "").encode()


class Recording:
    """All exchanges, in the order in which they were sent."""

    def __init__(self) -> None:
        self.exchanges: list[Exchange] = []
        self._count = itertools.count(1)
        self._lock = threading.Lock()

    def number(self) -> int:
        with self._lock:
            return next(self._count)

    def sent(self, **facts: Any) -> Exchange:
        exchange = Exchange(**facts, sent=self.number())
        with self._lock:
            self.exchanges.append(exchange)
        return exchange


class Proxy:
    """Listens for one caller (``call``: a command; agents and ranks are told by their token)."""

    def __init__(self, port: int, recording: Recording, call: str = "") -> None:
        self._port, self._recording, self._call = port, recording, call
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=100)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(near,), daemon=True).start()

    def _serve(self, near: socket.socket) -> None:
        with suppress(OSError), near, socket.create_connection(("127.0.0.1", self._port)) as far:
            requests, answers = near.makefile("rb"), far.makefile("rb", 0)
            with requests, answers:
                while self._exchange(near, far, requests, answers):
                    pass

    def _exchange(
        self, near: socket.socket, far: socket.socket, requests: Any, answers: Any
    ) -> bool:
        """Pass one request and its answer on. Return whether another may follow."""
        line, head, headers = _head(requests)
        if not line:
            return False
        body = b"".join(piece for piece, _ in _body(headers, requests))
        method, path, _ = line.decode().split(None, 2)
        exchange = self._recording.sent(
            by=headers.get("authorization", "").removeprefix("Bearer "),
            call=self._call,
            method=method,
            path=path,
            headers={name: headers[name] for name in KEPT if name in headers},
            body=body,
        )
        if headers.get("transfer-encoding") == "chunked":
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
        far.sendall(head + body)
        line, head, headers = _head(answers)
        if not line:
            return False
        exchange.status, exchange.type = int(line.split()[1]), headers.get("content-type", "")
        # Numbered before it is passed on: what it causes has a higher number.
        exchange.answered = self._recording.number()
        near.sendall(head)
        if exchange.status == 101:
            self._relay(exchange, near, far)
            return False
        for piece, sent in _body(headers, answers) if method != "HEAD" else ():
            exchange.answer += piece
            exchange.answered = self._recording.number()
            near.sendall(sent)
        return headers.get("connection", "").lower() != "close"

    def _relay(self, exchange: Exchange, near: socket.socket, far: socket.socket) -> None:
        other = threading.Thread(target=self._pass_on, args=(exchange, far, near, "server"))
        other.start()
        self._pass_on(exchange, near, far, "caller")
        other.join()
        exchange.ended = self._recording.number()

    def _pass_on(
        self, exchange: Exchange, start: socket.socket, end: socket.socket, by: str
    ) -> None:
        with suppress(OSError):
            while data := start.recv(65536):
                exchange.frames.append((self._recording.number(), by, data))
                end.sendall(data)
        for each in (start, end):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


def _head(file: BufferedReader) -> tuple[bytes, bytes, dict[str, str]]:
    """The first line of a message, all of its head, and its headers."""
    first = head = file.readline()
    headers = {}
    while first and (line := file.readline()):
        head += line
        if line in (b"\r\n", b"\n"):
            break
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    return first, head, headers


def _body(headers: dict[str, str], file: BufferedReader) -> Any:
    """The pieces of a body as they arrive, each with the bytes that transport it."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            line = file.readline()
            size = int(line.split(b";")[0], 16)
            data = _exactly(file, size)
            end = file.readline()
            yield data, line + data + end
            if not size:
                return
    left = int(headers.get("content-length", 0))
    while left:
        data = file.read(min(left, 65536))
        if not data:
            raise ConnectionResetError
        left -= len(data)
        yield data, data


def _exactly(file: BufferedReader, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = file.read(size - len(data))
        if not piece:
            raise ConnectionResetError
        data += piece
    return data


class MailboxRelay:
    """Passes files between the mailbox of agents and that of the server, and records them."""

    def __init__(self, nodes: Path, name: str, recording: Recording) -> None:
        self._nodes, self._name, self._recording = nodes, name, recording
        self._ended = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def close(self) -> None:
        self._ended.set()

    def _watch(self) -> None:
        while not self._ended.wait(0.02):
            for box in self._nodes.glob(f"*/mailbox{self._name}"):
                theirs = box.with_name("mailbox")
                with suppress(FileNotFoundError):  # its gang has ended meanwhile
                    for request in list((box / "in").iterdir()):
                        request.rename(theirs / f"{request.name}.new")
                        threading.Thread(target=self._pass_on, args=(request, box, theirs)).start()

    def _pass_on(self, request: Path, box: Path, server: Path) -> None:
        moved = server / f"{request.name}.new"
        line, _, body = moved.read_bytes().partition(b"\n")
        head = json.loads(line)
        exchange = self._recording.sent(
            by=head["token"],
            call="mailbox",
            method=head["method"],
            path=head["path"],
            headers={},
            body=body,
        )
        moved.rename(server / "in" / request.name)
        answered = server / "out" / request.name
        while not answered.exists() and not self._ended.is_set():
            time.sleep(0.01)
        line, _, exchange.answer = answered.read_bytes().partition(b"\n")
        exchange.status = json.loads(line)["status"]
        exchange.answered = self._recording.number()
        answered.rename(box / "out" / request.name)
