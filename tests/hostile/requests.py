"""Requests that lie to the server, its agents' routes and the router: about lengths, numbers,
nesting and the protocol that follows."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import tempfile
import threading
from functools import cache
from pathlib import Path

import uvicorn

from allranks.api.routes import ROUTES
from allranks.http_limits.connection_limit import Listener
from allranks.serve.protocol import Bounded
from allranks.serve.router import Router
from allranks.serve.table import Backend, Route, Site
from tests.hostile.harness import Outcome, Place
from tests.server.serving import Served, served
from tests.support import until

TRIES = 150
# Seconds until an answer, on a busy machine.
PATIENCE = 60.0
# These end the server, or have no end themselves.
LEFT_OUT = ("/server/stop", "/wait", "/changes", "/stream", "/follow")
PATHS = [row.address for row in ROUTES if not row.address.endswith(LEFT_OUT)]
NUMBERS = ["-1", "0", str(2**52), str(2**63), str(-(2**63)), "9" * 400, "1e400", "nan", "0x1", ""]
QUERIES = ["offset", "size", "limit", "after", "most", "attempt", "now", "stacks", "rank", "since"]
AGENTS = ["hello", "events", "stacks/1", "pace/1", "still/1", "logs/1/0", "points/1/metrics"]
AGENTS += ["state/sync", "state/missing", "work/torn", "state/contents/" + "0" * 64, "input/x"]
OFFERS = [
    b"",
    b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n",
]
OFFERS += [b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n"]
OFFERS += [b"connection: upgrade\r\nupgrade: allranks-channel\r\n", b"expect: 100-continue\r\n"]


# What runs until `close`.
OPEN = contextlib.ExitStack()


@cache
def server() -> tuple[Served, str]:
    """A server with a job, and the token of its agent, until `close`."""
    folder = OPEN.enter_context(tempfile.TemporaryDirectory())
    made = OPEN.enter_context(served(Path(folder) / "h"))
    made.submit("j")
    return made, made.auth.agent_token("j", 1)


@cache
def router() -> int:
    """The port of a router with an endpoint whose replica is gone."""
    folder = tempfile.TemporaryDirectory()
    app = Router(Path(folder.name))
    app.change([Site("e", None, {"blue": 100}, {}, (Route("blue", (Backend("b", "unix:b"),)),))])
    listening = Listener(socket.AF_INET, ("127.0.0.1", 0))
    config = uvicorn.Config(
        app, http=Bounded, loop="asyncio", lifespan="off", log_config=None, interface="asgi3"
    )
    running = uvicorn.Server(config)
    thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    until(lambda: running.started)

    def end() -> None:
        running.should_exit = True
        thread.join(30)
        folder.cleanup()

    OPEN.callback(end)
    return int(listening.getsockname()[1])


def body(chance: random.Random) -> bytes:
    deep = chance.choice([70, 2_000, 60_000])
    return chance.choice(
        [
            lambda: b"[" * deep,
            lambda: b"[" * deep + b"]" * deep,
            lambda: b'{"a":' * deep + b"1" + b"}" * deep,
            lambda: json.dumps([chance.choice(NUMBERS)] * chance.choice([1, 100_000])).encode(),
            lambda: b"[" + b"0," * chance.choice([10, 300_000]) + b"0]",
            lambda: b"-%d" % 2**70 + b"0" * chance.choice([0, 5_000]),
            lambda: chance.randbytes(chance.choice([1, 5_000])),
            lambda: b'{"spec": {"name": "x", "command": "%s"}}' % (b"$[[" * deep),
            lambda: b"",
        ]
    )()


def request(chance: random.Random, path: str, method: str, token: str) -> bytes:
    """A request whose head may say something else than its body is."""
    for name in ("name", "reference", "version", "state", "digest", "number", "index", "_:rest"):
        value = chance.choice(["j", "0" * 64, "..%2f..", *NUMBERS[:6], "[" * 5_000])
        path = path.replace(f"{{{name}}}", value)
    query = "&".join(f"{chance.choice(QUERIES)}={chance.choice(NUMBERS)}" for _ in range(3))
    head = (
        f"{method} {path}?{query} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n"
    )
    content = body(chance)
    length = chance.choice([len(content)] * 6 + [len(content) + 9, 2**52, 10**30, 0])
    framing = b"content-length: %d\r\n\r\n" % length
    if chance.random() < 0.2:
        size = chance.choice([b"%x" % len(content), b"f" * 15, b"-1"])
        framing = b"transfer-encoding: chunked\r\n\r\n"
        content = size + b"\r\n" + content + b"\r\n0\r\n\r\n"
    return head.encode("latin-1", "replace") + chance.choice(OFFERS) + framing + content


def attempt(chance: random.Random, place: Place) -> Outcome:
    made, agent = server()
    port, kind = int(made.url.rpartition(":")[2]), chance.choice(["people", "agents", "router"])
    if kind == "people":
        method, _, path = chance.choice(PATHS).partition(" ")
        sent = request(chance, f"/api/v1{path}", method, made.token())
    elif kind == "agents":
        method, path = chance.choice(["GET", "POST", "PUT"]), chance.choice(AGENTS)
        sent = request(chance, f"/agent/v1/{chance.choice([0, 1, 2**52])}/{path}", method, agent)
    else:
        port, path = router(), chance.choice(["e/score", "e", "x/{name}", "/", "e/{_:rest}"])
        sent = request(chance, f"/endpoints/{path}", chance.choice(["GET", "POST", "HEAD"]), "x")
    received = b""
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        with contextlib.suppress(OSError):  # it was closed: what was sent is refused
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            while piece := connection.recv(1 << 16):
                received += piece
    statuses = [int(part[:3]) for part in received.split(b"HTTP/1.1 ")[1:]]
    # Of a router without a replica.
    assert all(status < 500 or (kind, status) == ("router", 503) for status in statuses), (
        sent[:300],
        received[:500],
    )
    assert b"Traceback" not in received
    return Outcome()


def close() -> None:
    """End the server and the router of all tries."""
    OPEN.close()
    server.cache_clear()
    router.cache_clear()
