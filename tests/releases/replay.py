"""Send the requests of a transcript to a server of this version, in the order of the recording."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

from tests.releases.transcript import Exchange

# Seconds that an answer may take after its turn has come.
PATIENCE = 12.0


class Answer(NamedTuple):
    status: int
    body: bytes


def is_of_folders(exchange: Exchange) -> bool:
    """Whether it is about the files of a node."""
    return re.match(r"/agent/v1/\d+/(state|record|work)/", exchange.path) is not None


def turns(exchanges: Sequence[Exchange]) -> dict[int, float]:
    """When to send the requests about folders: one after the other, as they were answered. Of
    those that crossed, the server has said by its numbers which one it did first."""
    syncs: dict[tuple[str, str], list[Exchange]] = {}
    for exchange in exchanges:
        if is_of_folders(exchange) and exchange.path.endswith("/sync") and exchange.launch:
            kind = exchange.path.split("/")[4]
            # Each node has a working folder of its own.
            key = exchange.launch[1], exchange.path if kind == "work" else kind
            syncs.setdefault(key, []).append(exchange)
    result: dict[int, float] = {}
    for several in syncs.values():
        # The latest first: each comes before those that it precedes.
        turn = float("inf")
        for exchange in sorted(several, key=place_of, reverse=True):
            turn = min(float(exchange.answered), turn - 0.001)
            result[exchange.sent] = turn
    return result


def place_of(sync: Exchange) -> tuple[int, bool, int]:
    """The place of a sync among others: by its revision; who made it first."""
    return sync.json["revision"], not sync.json["done"], sync.answered


def numbers_in(order: dict[str, Any]) -> list[int]:
    """The numbers of what people ask an agent for: each is the time of it."""
    asked = [*order.get("channels", ()), order.get("profile")]
    stacks = [order["stacks"]] if "stacks" in order else []
    return stacks + [one["number"] for one in asked if one]


class Replay:
    """Plays exchanges against the server at ``port``. ``begin`` is called before each is sent and
    returns the token to show. ``compare`` gets each exchange with what is answered now, in the
    recorded order."""

    def __init__(
        self,
        port: int,
        begin: Callable[[Exchange], str],
        compare: Callable[[Exchange, Answer], None],
    ) -> None:
        self._port, self._begin, self._compare = port, begin, compare
        # What this server calls what the other one called otherwise.
        self._names: dict[str, str] = {}
        self._revisions: dict[tuple[str, str], dict[int, int]] = {}
        self._threads = ThreadPoolExecutor(64)

    def play(self, exchanges: Sequence[Exchange]) -> None:
        """Each request is sent when all has been answered that was answered before it."""
        steps: list[tuple[float, str, Exchange, Any]] = []
        turn = turns(exchanges)
        for exchange in exchanges:
            steps.append((exchange.sent, "send", exchange, None))
            at = turn.get(exchange.sent, exchange.answered)
            steps.append((at, "answer", exchange, None))
            steps += [(n, "frame", exchange, (end, data)) for n, end, data in exchange.frames]
            if exchange.ended:
                steps.append((exchange.ended, "end", exchange, None))
        running: dict[int, Future[Answer]] = {}
        channels: dict[int, _Channel] = {}
        try:
            for _, step, exchange, more in sorted(steps, key=lambda step: step[0]):
                key = exchange.sent
                if step == "send" and exchange.status == 101:
                    channels[key] = _Channel(self, exchange)
                elif step == "send":
                    if not is_of_folders(exchange):
                        running[key] = self._threads.submit(self._call, exchange)
                elif step == "answer" and key in channels:
                    channels[key].opened.result(PATIENCE)
                elif step == "answer":
                    answer = self._answer(exchange, running.pop(key, None))
                    self._learn(exchange, answer)
                    self._compare(exchange, answer)
                elif step == "frame":
                    channels[key].frame(*more)
                else:
                    channels.pop(key).close()
        finally:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _answer(self, exchange: Exchange, running: Future[Answer] | None) -> Answer:
        if running is None:
            return self._call(exchange)
        assert wait([running], PATIENCE).done, f"{exchange.sent} {exchange.path}: no answer"
        answer = running.result()
        if "/orders?" in exchange.path and answer.status == 200:
            until = time.monotonic() + PATIENCE
            while json.loads(answer.body)["do"] != exchange.json["do"] and time.monotonic() < until:
                answer = self._call(exchange)  # it has waited for as long as it may
        return answer

    def _learn(self, exchange: Exchange, answer: Answer) -> None:
        """The name of this server, which is in its orders' ids; times of files that it has made;
        the numbers of its changes and of channels."""
        path = exchange.path.partition("?")[0]
        if path.endswith("/channels") and answer.status == exchange.status:
            self._names[str(exchange.json["number"])] = str(json.loads(answer.body)["number"])
        if exchange.launch is None or not exchange.status == answer.status == 200:
            return
        if path.endswith(("/hello", "/orders")):
            before, now = exchange.json, json.loads(answer.body)
            before, now = before.get("order", before), now.get("order", now)
            self._names[before["server"]] = now["server"]
            for old, new in zip(numbers_in(before), numbers_in(now), strict=False):
                self._names[str(old)] = str(new)
        elif path.endswith("/sync"):
            before, now = exchange.json, json.loads(answer.body)
            numbers = self._numbers(exchange)
            numbers[before["revision"]] = now["revision"]
            for file in before["done"].keys() & now["done"].keys():
                numbers[before["done"][file]] = now["done"][file]
            for file, entry in (before["entries"] or {}).items():
                if file in (now["entries"] or {}):
                    numbers[entry[6]] = now["entries"][file][6]
        elif "/input/" in path and exchange.method == "GET" and "files" in exchange.json:
            files = zip(exchange.json["files"], json.loads(answer.body)["files"], strict=False)
            for old, new in files:
                self._names[str(old[2])] = str(new[2])

    def _numbers(self, exchange: Exchange) -> dict[int, int]:
        """The numbers of changes of the job's state, record or working folders, by recorded one."""
        assert exchange.launch is not None
        kind = exchange.path.split("/")[4]
        kind = exchange.path if kind == "work" else kind
        return self._revisions.setdefault((exchange.launch[1], kind), {})

    def _body(self, exchange: Exchange) -> bytes:
        body = exchange.body
        if exchange.path.endswith("/sync"):
            data, numbers = json.loads(body), self._numbers(exchange)
            data["after"] = numbers.get(data["after"], data["after"])
            for put in data["puts"]:
                put["base"] = numbers.get(put["base"], put["base"])
            return json.dumps(data).encode()
        if "/input/" in exchange.path:
            for name, other in self._names.items():
                body = body.replace(name.encode(), other.encode())
        return body

    def request(self, exchange: Exchange, more: str = "") -> tuple[bytes, bytes]:
        """The head and the body of the request."""
        path = exchange.path
        for name, other in self._names.items():
            path = path.replace(name, other)
        body = self._body(exchange)
        head = f"{exchange.method} {path} HTTP/1.1\r\nhost: 127.0.0.1:{self._port}\r\n"
        head += f"authorization: Bearer {self._begin(exchange)}\r\n"
        head += f"content-length: {len(body)}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in exchange.headers.items())
        if "upgrade" in exchange.headers:
            head += "connection: upgrade\r\n"
        return f"{head}\r\n".encode(), body

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=2 * PATIENCE)

    def _call(self, exchange: Exchange) -> Answer:
        with self.connect() as connection:
            connection.sendall(
                b"".join(self.request(exchange)).replace(
                    b"content-length", b"connection: close\r\ncontent-length", 1
                )
            )
            data = b""
            while piece := connection.recv(1 << 20):
                data += piece
        head, _, body = data.partition(b"\r\n\r\n")
        if b"transfer-encoding: chunked" in head.lower():
            body = _unchunked(body)
        return Answer(int(head.split()[1]), body)


def _unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole


class _Channel:
    """A caller's end of a channel."""

    def __init__(self, replay: Replay, exchange: Exchange) -> None:
        self._replay, self._exchange = replay, exchange
        self.opened: Future[None] = Future()
        self._received = b""
        self._expected = b""
        threading.Thread(target=self._open, daemon=True).start()

    def _open(self) -> None:
        try:
            self._connection = self._replay.connect()
            self._connection.sendall(b"".join(self._replay.request(self._exchange)))
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                if not (byte := self._connection.recv(1)):
                    break
                head += byte
            assert head.split()[1:2] == [b"101"], f"{self._exchange.path}: {head!r}"
            self.opened.set_result(None)
        except BaseException as error:
            self.opened.set_exception(error)

    def frame(self, end: str, data: bytes) -> None:
        """Send what the caller sent; wait for what the server passed on from the other end."""
        if end == "caller":
            self._connection.sendall(data)
            return
        self._expected += data
        while len(self._received) < len(self._expected):
            piece = self._connection.recv(len(self._expected) - len(self._received))
            assert piece, f"{self._exchange.path} ended before {self._expected!r}"
            self._received += piece
        assert self._received == self._expected, self._exchange.path

    def close(self) -> None:
        self._connection.close()
