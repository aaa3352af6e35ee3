"""A server that answers agents as a transcript does, for agents of this version."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.releases.transcript import Exchange

# Seconds until an agent that is told nothing new is answered.
POLL = 1.0
# Events on which no order depends, or which come at any time.
FREE = ("note", "rank_ended", "hello")


class Folder:
    """A state, a record or a working folder, with what the recorded node found there."""

    def __init__(self, exchanges: list[Exchange]) -> None:
        self.contents: dict[str, bytes] = {}
        syncs = [each for each in exchanges if each.path.endswith("/sync")]
        first = next((each.json for each in syncs if each.json["entries"]), None)
        self.revision: int = first["revision"] if first else 0
        self.entries: dict[str, Any] = first["entries"] if first else {}
        for each in exchanges:
            if each.method == "GET" and "/contents/" in each.path:
                self.contents[each.path.partition("?")[0][-64:]] = each.answer
            elif each.method == "POST" and each.path.endswith("/contents"):
                head, _, data = each.answer.partition(b"\n")
                for sha256, size in json.loads(head):
                    self.contents[sha256], data = data[:size], data[size:]

    def sync(self, report: dict[str, Any]) -> dict[str, Any]:
        before, done = self.revision, {}
        for put in report["puts"]:
            self.revision += 1
            self.entries[put["path"]] = [*put["entry"][:6], self.revision]
            done[put["path"]] = self.revision
        entries = None if report["after"] == before else self.entries
        return {"revision": self.revision, "done": done, "entries": entries, "due": False}


class Player:
    """``exchanges`` are those of the agents of one launch. ``requests`` gets all requests, as
    method, path and body; ``events`` those of all nodes."""

    def __init__(self, exchanges: list[Exchange], known: list[re.Pattern[str]]) -> None:
        self.requests: list[tuple[str, str, bytes]] = []
        self.unknown: list[str] = []
        self.events: list[dict[str, Any]] = []
        self.logs: dict[str, bytes] = {}
        self.points: dict[str, bytes] = {}
        self._exchanges, self._known = exchanges, known
        self._changed = threading.Condition()
        self._next: dict[int, int] = {}
        self.folders: dict[str, Folder] = {}
        for kind in ("state", "record", "work"):
            for node in (0, 1):
                own = [e for e in exchanges if f"/v1/{node}/{kind}/" in e.path]
                key = kind if kind != "work" else f"{kind}{node}"
                if own and (key not in self.folders or not self.folders[key].contents):
                    self.folders[key] = Folder(own)

    def channel(self, target: str) -> Exchange:
        return next(e for e in self._exchanges if e.status == 101 and e.path == target)

    def wait_for_others(self, target: str) -> None:
        """Wait for the ends of the other connections of a channel."""
        number = target.rpartition("/")[0] + "/"
        with self._changed:
            self._changed.wait_for(lambda: any(r[1].startswith(number) for r in self.requests), 5.0)

    def received(self, target: str, data: bytes) -> None:
        """Take what came through a channel, once it has ended."""
        with self._changed:
            self.requests.append(("POST", target, data))
            self._changed.notify_all()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        path, query = urlsplit(target).path, parse_qs(urlsplit(target).query)
        with self._changed:
            self.requests.append((method, target, body))
            self._changed.notify_all()
        if not any(pattern.fullmatch(f"{method} {path}") for pattern in self._known):
            self.unknown.append(f"{method} {path}")
            return 404, json.dumps({"error": "not_found", "message": "no such page"}).encode()
        node, word = int(path.split("/")[3]), path.split("/")[4]
        if word == "orders":
            return 200, self._order(node, int(query["attempt"][0]))
        if word == "events":
            return 200, self._take_events(json.loads(body))
        if word in ("logs", "points"):
            texts = self.logs if word == "logs" else self.points
            with self._changed:
                key = path.partition(f"/{word}/")[2] + (f" {node}" if word == "points" else "")
                texts[key] = texts.get(key, b"")[: int(query["offset"][0])] + body
                self._changed.notify_all()
                return 200, json.dumps({"size": len(texts[key])}).encode()
        if word in ("state", "record", "work"):
            return self._answer_of_folder(method, path, query, body, node)
        if word in ("still", "pace"):
            return 200, b'{"suspects": false}'
        return self._recorded(method, target, body)

    def _recorded(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        """The recorded answer to the same request."""
        for exchange in self._exchanges:
            same_body = method != "POST" or "/input/" not in target or exchange.body == body
            if (exchange.method, exchange.path) == (method, target) and same_body:
                return exchange.status, exchange.answer
        self.unknown.append(f"{method} {target} {body[:200]!r}")
        return 404, b'{"error": "not_found", "message": "nobody asked for it"}'

    def _take_events(self, events: list[dict[str, Any]]) -> bytes:
        with self._changed:
            have = {(event["node"], event["seq"]) for event in self.events}
            self.events += [e for e in events if (e["node"], e["seq"]) not in have]
            self._changed.notify_all()
        return json.dumps({"acknowledged": max(e["seq"] for e in events)}).encode()

    def _order(self, node: int, attempt: int) -> bytes:
        """The next recorded order, once all that led to it has happened here, too."""
        orders = [e for e in self._exchanges if f"/{node}/orders?" in e.path]
        until = time.monotonic() + POLL
        with self._changed:
            while (index := self._next.get(node, 0)) < len(orders):
                order = orders[index]
                if self._needed(order.answered) <= self._happened():
                    self._next[node] = index + 1
                    return self._with_places(order)
                if (left := until - time.monotonic()) <= 0:
                    break
                self._changed.wait(left)
        before = orders[min(index, len(orders)) - 1] if index else self._hello(node)
        data = json.loads(before.answer)
        return json.dumps(data.get("order", data)).encode()

    def _with_places(self, order: Exchange) -> bytes:
        """The order, with the ports that the nodes have here."""
        data = order.json
        ready = [event for event in self.events if event["kind"] == "ready"]
        for event in ready if "places" in data else ():
            data["places"][event["node"]]["ports"] = event["data"]["ports"]
        return json.dumps(data).encode()

    def _hello(self, node: int) -> Exchange:
        return next(e for e in self._exchanges if e.path.endswith(f"/{node}/hello"))

    def _needed(self, number: int) -> set[tuple[Any, ...]]:
        """What happened before that number: events, output, ends of what people asked for."""
        done = {
            (each.method, each.path)
            for each in self._exchanges
            if is_asked_for(each.path) and (each.ended or each.answered) < number
        }
        logs = {
            ("logs", each.path.partition("/logs/")[2].partition("?")[0])
            for each in self._exchanges
            if "/logs/" in each.path and each.body and each.answered < number
        }
        return (
            logs
            | done
            | {
                fact(event)
                for each in self._exchanges
                if "/events" in each.path and each.sent < number
                for event in json.loads(each.body)
                if event["kind"] not in FREE
            }
        )

    def _happened(self) -> set[tuple[Any, ...]]:
        done = {(method, path) for method, path, _ in self.requests if is_asked_for(path)}
        logs = {("logs", name) for name, text in self.logs.items() if text}
        return logs | done | {fact(event) for event in self.events}

    def _answer_of_folder(
        self, method: str, path: str, query: dict[str, list[str]], body: bytes, node: int
    ) -> tuple[int, bytes]:
        kind, word = path.split("/")[4:6]
        key = kind if kind != "work" else f"{kind}{node}"
        with self._changed:
            folder = self.folders.setdefault(key, Folder([]))
            if word == "sync":
                return 200, json.dumps(folder.sync(json.loads(body))).encode()
            if word == "missing":
                lacks = {sha: 0 for sha in json.loads(body) if sha not in folder.contents}
                return 200, json.dumps(lacks).encode()
            if method == "PUT" and word == "contents" and path.endswith("/contents"):
                head, _, data = body.partition(b"\n")
                for sha256, size in json.loads(head):
                    folder.contents[sha256], data = data[:size], data[size:]
                return 204, b""
            if method == "PUT" and word == "contents":
                have = folder.contents.get(path[-64:], b"")[: int(query["offset"][0])] + body
                folder.contents[path[-64:]] = have
                return 200, json.dumps({"have": len(have)}).encode()
            if method == "GET":
                start, size = int(query["offset"][0]), int(query["size"][0])
                return 200, folder.contents[path[-64:]][start : start + size]
            if method == "POST" and word == "contents":
                contents = [(sha, folder.contents[sha]) for sha in json.loads(body)]
                head = json.dumps([[sha, len(data)] for sha, data in contents]).encode()
                return 200, b"".join([head, b"\n", *(data for _, data in contents)])
            return 200, b"{}"


def is_asked_for(path: str) -> bool:
    return re.match(r"/agent/v1/\d+/(stacks|profiles|channels)/", path) is not None


def fact(event: dict[str, Any]) -> tuple[Any, ...]:
    return event["node"], event["attempt"], event["kind"]


class Desk(Player):
    """Answers people: ``exchanges`` are those of one command, ``others`` those of all, for requests
    that the command makes now and did not make then."""

    def __init__(self, exchanges: list[Exchange], others: list[Exchange]) -> None:
        super().__init__(exchanges, [])
        self._others = others

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        path = target.partition("?")[0]
        if path == "/healthz":
            return 200, b"{}"
        with self._changed:
            alike = [
                each
                for each in (*self._exchanges, *self._others)
                if (each.method, each.path.partition("?")[0]) == (method, path)
            ]
            if not alike:
                self.unknown.append(f"{method} {target} {body[:200]!r}")
                return 404, b'{"error": "not_found", "message": "nobody asked for it"}'
            exchange = next((each for each in alike if each.path == target), alike[0])
            if exchange in self._exchanges and len(alike) > 1:  # its next answer comes next
                self._exchanges.remove(exchange)
            return exchange.status, exchange.answer


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    player: Player

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if "upgrade" in self.headers:
            self._upgrade()
            return
        status, data = self.player.answer(self.command, self.path, body)
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _upgrade(self) -> None:
        """Send what the other end of the channel sent, and keep what comes."""
        exchange = self.player.channel(self.path)
        self.send_response(101)
        self.send_header("connection", "upgrade")
        self.send_header("upgrade", self.headers["upgrade"])
        self.end_headers()
        received = b""
        with contextlib.suppress(OSError):  # the other end may be done before it has all
            for _, end, data in exchange.frames:
                if end == "server":
                    self.wfile.write(data)
            if not any(end == "caller" for _, end, _ in exchange.frames):
                self.player.wait_for_others(self.path)  # of a port: its client went away first
                self.connection.shutdown(socket.SHUT_RDWR)
            while piece := self.connection.recv(1 << 16):
                received += piece
        self.player.received(self.path, received)
        self.close_connection = True

    do_DELETE = do_PATCH = do_GET = do_POST = do_PUT = _answer  # named by the library

    def log_message(self, *_: object) -> None: ...


def play(player: Player) -> Iterator[str]:
    """Serve; yields the URL."""
    handler = type("Handler", (_Handler,), {"player": player})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
