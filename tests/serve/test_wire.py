"""What goes between callers, the router and a replica that answers bytes of the test's choice."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from allranks.serve.access_log import AccessLog
from allranks.serve.probes import _note
from allranks.serve.router import Router
from allranks.serve.table import Backend, Route, Site

CLOSE = b"close"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Wire:
    """A router and its replica, which gives the next of ``answers`` to each request."""

    def __init__(self, folder: Path, *answers: tuple[bytes, ...]) -> None:
        self.log = folder / "access.log"
        self.router = Router(folder, AccessLog(self.log))
        route = Route("blue", (Backend("b", "unix:b"),))
        self.router.change([Site("e", None, {"blue": 100}, {}, (route,))])
        self.worker = self.router.places["e"].deployments["blue"].workers["b"]
        self.worker.ready = True
        self.requests: list[bytes] = []
        self.answers = list(answers)
        self.connections: list[Any] = []
        # Requests that come before the first one is answered.
        self.least = 0

    async def replica(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        try:
            while True:
                self.requests.append(await reader.readuntil(b"\r\n\r\n"))
                while len(self.requests) < self.least:
                    await asyncio.sleep(0)
                for piece in self.answers.pop(0):
                    if piece is CLOSE:
                        return writer.close()
                    writer.write(piece)
                    for _ in range(100):  # until it was read
                        await asyncio.sleep(0)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def is_left(self) -> None:
        """Until the router has closed all connections."""
        await asyncio.wait_for(asyncio.gather(*self.connections), 10)

    async def ask(
        self,
        path: bytes = b"/endpoints/e/score",
        method: str = "GET",
        is_gone: bool = False,
        reads: asyncio.Event | None = None,
        pieces: list[bytes] | None = None,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> tuple[int, bytes]:
        """The answer; ``is_gone``: the caller leaves when the answer has begun, ``reads``: it reads
        on when that is set."""
        messages: list[Any] = []
        begun, read = asyncio.Event(), False

        async def receive() -> Any:
            nonlocal read
            if pieces:
                await asyncio.sleep(0)
                return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}
            if not read and pieces is None:
                read = True
                return {"type": "http.request"}
            await begun.wait()
            if not is_gone:
                await asyncio.Event().wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            messages.append(message)
            if message.get("body"):
                begun.set()
                if reads is not None:
                    await reads.wait()

        scope = {
            "type": "http",
            "method": method,
            "path": path.replace(b"%0D%0A", b"\r\n").replace(b"%20", b" ").decode(),
            "raw_path": path,
            "query_string": b"",
            "headers": [*headers],
        }
        await asyncio.wait_for(self.router(scope, receive, send), 10)
        return messages[0]["status"], b"".join(each.get("body", b"") for each in messages)


Scenario = Callable[[Wire], Awaitable[None]]


@pytest.fixture
def play(tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Scenario, *answers: bytes | tuple[bytes, ...]) -> None:
        async def main() -> None:
            wire = Wire(
                tmp_path, *(each if isinstance(each, tuple) else (each,) for each in answers)
            )
            server = await asyncio.start_unix_server(wire.replica, tmp_path / "b")
            try:
                await scenario(wire)
            finally:
                wire.worker.pool.close()
                await wire.is_left()
                server.close()

        asyncio.run(main())

    return run


def test_a_path_stays_as_it_was_sent(play):
    """Decoded, it would bring lines of its own: a second request, whose answer another gets."""

    async def scenario(wire: Wire) -> None:
        path = b"a%20HTTP/1.1%0D%0Ax:%20y%0D%0A%0D%0AGET%20/b%2Fc"
        assert await wire.ask(b"/endpoints/e/" + path) == (200, b"ok")
        assert wire.requests[0].startswith(b"GET /" + path + b" HTTP/1.1\r\n")

    play(scenario, OK)


def test_each_line_of_the_access_log_is_json(play):
    async def scenario(wire: Wire) -> None:
        path, name = b'/endpoints/e/"\\{}%22', b'"\\\x01\xff'
        await wire.ask(path, headers=((b"x-request-id", name),))
        while not wire.log.exists():  # it is written a turn of the loop later
            await asyncio.sleep(0)
        (line,) = wire.log.read_text().splitlines()
        entry = json.loads(line)
        assert (entry["path"], entry["id"]) == (path.decode(), name.decode("latin-1"))
        assert (entry["client"], entry["status"], entry["deployment"]) == ("", 200, "blue")
        assert isinstance(entry["time"], float)
        assert isinstance(entry["ms"], float)

    play(scenario, OK)


def test_the_answer_to_head_has_no_body(play):
    async def scenario(wire: Wire) -> None:
        assert await wire.ask(method="HEAD") == (200, b"")
        assert await wire.ask() == (200, b"ok")

    play(scenario, OK.removesuffix(b"ok"), OK)


@pytest.mark.parametrize("early", [b"100 Continue", b"103 Early Hints"])
def test_an_early_answer_is_not_the_answer(play, early):
    async def scenario(wire: Wire) -> None:
        assert await wire.ask() == (200, b"ok")
        assert await wire.ask() == (404, b"no")
        assert len(wire.connections) == 1

    early = b"HTTP/1.1 " + early + b"\r\nlink: <a>\r\n\r\n"
    play(scenario, (early, OK), OK.replace(b"200", b"404").replace(b"ok", b"no"))


def test_early_answers_without_end_are_none(play):
    async def scenario(wire: Wire) -> None:
        assert (await wire.ask())[0] == 502

    play(scenario, (b"HTTP/1.1 103 Early Hints\r\nlink: <a>\r\n\r\n" * 2000, OK))


def test_an_answer_too_many_is_nobodys(play):
    async def scenario(wire: Wire) -> None:
        assert await wire.ask() == (200, b"ok")
        assert await wire.ask() == (404, b"no")

    play(scenario, OK + OK, OK.replace(b"200", b"404").replace(b"ok", b"no"))


def test_a_short_answer_that_is_cut_is_none(play):
    async def scenario(wire: Wire) -> None:
        status, body = await wire.ask()
        assert status == 502
        assert b"the replica b ended before its answer" in body

    play(scenario, (OK.removesuffix(b"k"), CLOSE))


def test_a_caller_that_leaves_frees_the_replica(play):
    async def scenario(wire: Wire) -> None:
        assert await wire.ask(is_gone=True) == (200, b"one")
        assert wire.worker.running == 0
        await wire.is_left()

    play(scenario, b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")


@pytest.mark.parametrize("size", [1 << 19, 3 << 20])  # less and more than is read ahead
def test_a_slow_reader_holds_no_turn(play, size):
    async def scenario(wire: Wire) -> None:
        reads = asyncio.Event()
        slow = asyncio.create_task(wire.ask(reads=reads))
        while not wire.worker.streams:
            await asyncio.sleep(0)
        assert wire.worker.running == 0
        (state,) = wire.router.state().values()
        assert state["replicas"]["b"]["running"] == 1  # it does not stop for an update
        reads.set()
        assert await slow == (200, b"x" * size)
        assert (wire.worker.running, wire.worker.streams) == (0, 0)

    play(scenario, (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, b"x" * size))


def test_an_answer_whose_head_has_no_end(play):
    async def scenario(wire: Wire) -> None:
        status, body = await wire.ask()
        assert status == 502
        assert b"ended before its answer" in body

    play(scenario, (b"HTTP/1.1 200 OK\r\n", *(b"x: " + b"y" * 1000 + b"\r\n",) * 100))


def test_an_answer_that_comes_before_the_body_was_sent(play):
    async def scenario(wire: Wire) -> None:
        size = 32 << 20
        headers = ((b"content-length", b"%d" % size),)
        pieces = [b"x" * (1 << 16)] * (size >> 16)
        assert await wire.ask(method="POST", pieces=pieces, headers=headers) == (413, b"no")
        assert wire.worker.ready

    play(scenario, (OK.replace(b"200 OK", b"413 Too Large").replace(b"ok", b"no"), CLOSE))


def test_a_body_without_a_length_is_not_kept(play):
    async def scenario(wire: Wire) -> None:
        pieces = [b"x" * (1 << 16)] * 32
        assert (await wire.ask(method="POST", pieces=pieces))[0] == 411
        assert len(pieces) >= 14

    play(scenario)


def test_a_failure_counts_once_in_a_period(play):
    async def scenario(wire: Wire) -> None:
        deployment = wire.router.places["e"].deployments["blue"]
        for _ in range(30):
            _note(deployment, wire.worker, "it did not answer")
        assert wire.worker.failures == 1

    play(scenario)


def test_many_requests_at_once_open_few_connections(play):
    """A router that is late would be ever later with a connection for each."""

    async def scenario(wire: Wire) -> None:
        deployment = wire.router.places["e"].deployments["blue"]
        deployment.change(deployment.route._replace(concurrency=1000))
        answers = await asyncio.gather(*(wire.ask() for _ in range(300)))
        assert set(answers) == {(200, b"ok")}
        assert len(wire.connections) < 200

    play(scenario, *[OK] * 300)


def test_as_many_requests_at_once_as_the_replica_takes(play):
    """It answers none before the last one has come; callers that wait for a connection leave."""

    async def scenario(wire: Wire) -> None:
        deployment = wire.router.places["e"].deployments["blue"]
        deployment.change(deployment.route._replace(concurrency=1000))
        wire.least = 50
        leaving = [asyncio.create_task(wire.ask()) for _ in range(20)]
        for task in leaving:
            await asyncio.sleep(0)
            task.cancel()
        answers = await asyncio.gather(*(wire.ask() for _ in range(50)))
        assert set(answers) == {(200, b"ok")}

    play(scenario, *[OK] * 70)
