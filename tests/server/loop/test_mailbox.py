"""Questions put into a folder come to the agents' routes, and their answers back."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import Route

from allranks.agent.transport.mailbox import Mailbox
from allranks.errors import NotFound, Unreachable
from allranks.server.http.error_responses import HANDLERS
from allranks.server.loop import mailbox
from allranks.settings import Home


async def echo(request: Request) -> Response:
    body = (await request.body()).decode()
    return JSONResponse(
        {
            "method": request.method,
            "query": dict(request.query_params),
            "token": request.headers["authorization"],
            "body": body,
        }
    )


async def file(request: Request) -> Response:
    return FileResponse(__file__)


async def missing(request: Request) -> Response:
    raise NotFound("no such thing", hint="look elsewhere")


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Mailbox]:
    home = Home(tmp_path / "ho'me x")
    routes = [
        Route("/echo", echo, methods=["PUT", "GET"]),
        Route("/file", file),
        Route("/missing", missing),
    ]
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    row: Any = SimpleNamespace(name="job", record=SimpleNamespace(launch=1))
    row.plan = SimpleNamespace(server_address=mailbox.ADDRESS)
    records: Any = SimpleNamespace(live=lambda: [row])
    boxes = mailbox.Mailboxes(home, records, app)
    url = mailbox.url(home, "job.1")
    loop = asyncio.new_event_loop()
    serving = loop.create_task(boxes.serve())

    def run() -> None:
        try:
            loop.run_until_complete(serving)
        except asyncio.CancelledError:
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    yield Mailbox(url, "token")
    loop.call_soon_threadsafe(serving.cancel)
    thread.join()


def test_a_question_and_its_answer(box: Mailbox):
    told = json.loads(box.call("PUT", "/echo?a=1&b=x", b"two\nlines\0").body)
    assert told == {
        "method": "PUT",
        "query": {"a": "1", "b": "x"},
        "token": "Bearer token",
        "body": "two\nlines\0",
    }
    assert box.json("GET", "/echo")["body"] == ""


def test_a_file_comes_whole(box: Mailbox):
    assert b"".join(box.download("/file")) == Path(__file__).read_bytes()


def test_a_refusal_is_the_same_error(box: Mailbox):
    with pytest.raises(NotFound, match="no such thing") as caught:
        box.json("GET", "/missing")
    assert caught.value.hint == "look elsewhere"


def test_many_ask_at_once(box: Mailbox):
    found: list[str] = []

    def ask(number: int) -> None:
        mine = Mailbox(box.url, "token")
        found.append(json.loads(mine.call("PUT", "/echo", str(number).encode()).body)["body"])

    askers = [threading.Thread(target=ask, args=(number,)) for number in range(20)]
    for asker in askers:
        asker.start()
    for asker in askers:
        asker.join()
    assert sorted(map(int, found)) == list(range(20))


def test_where_nobody_reads_nobody_answers(tmp_path: Path):
    home = Home(tmp_path)
    alone = Mailbox(mailbox.url(home, "job.1"), "token")
    with pytest.raises(Unreachable, match="does not answer"):
        alone.call("GET", "/echo", timeout=0.1)
    with pytest.raises(Unreachable, match="cannot use the mailbox"):
        Mailbox(f"mailbox:{tmp_path}/nowhere", "token").call("GET", "/echo")
    assert not list((mailbox.box(home, "job.1") / "in").iterdir())
