"""Mailboxes in which a job has put what is no request: it stops neither its own nor another's."""

import asyncio
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.agent.transport.mailbox import ANSWERS, QUESTIONS, write
from allranks.server.http.request_limits import LIMITS
from allranks.server.loop import mailbox
from allranks.server.loop.mailbox import Mailboxes, box, url
from allranks.settings import Home

HEAD = {"method": "GET", "path": "/x", "token": "t"}


def link_to_zeros(path: Path) -> None:
    path.symlink_to("/dev/zero")


def hole(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 42)


def deep(path: Path) -> None:
    path.write_bytes(b"[" * 60_000)


def no_head(path: Path) -> None:
    path.write_bytes(b"[]\n")


def half_a_head(path: Path) -> None:
    path.write_bytes(json.dumps({**HEAD, "path": 5}).encode())


def not_text(path: Path) -> None:
    path.write_bytes(b"\xff\0")


@pytest.mark.parametrize(
    "put", [os.mkfifo, link_to_zeros, hole, deep, no_head, half_a_head, not_text, os.mkdir]
)
def test_what_is_no_request_stops_no_mailbox(tmp_path, put):
    home = Home(tmp_path / "h")
    for key in ("bad.1", "good.1"):
        url(home, key)
    put(box(home, "bad.1") / QUESTIONS / "0")
    write(box(home, "good.1") / QUESTIONS / "q", HEAD, b"")
    answer = box(home, "good.1") / ANSWERS / "q"

    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204, "headers": []})

    rows = [
        SimpleNamespace(
            name=name,
            plan=SimpleNamespace(server_address="mailbox"),
            record=SimpleNamespace(launch=1),
        )
        for name in ("bad", "good")
    ]
    records: Any = SimpleNamespace(live=lambda: rows)

    async def serve() -> None:
        serving = asyncio.create_task(Mailboxes(home, records, app).serve())
        try:
            async with asyncio.timeout(5):
                while not answer.exists():
                    assert not serving.done(), serving.exception()
                    await asyncio.sleep(0.01)
        finally:
            serving.cancel()

    asyncio.run(serve())
    assert put is os.mkdir or not os.path.lexists(box(home, "bad.1") / QUESTIONS / "0")


def test_no_more_is_read_at_once_than_a_request_may_have(tmp_path, monkeypatch):
    monkeypatch.setattr(mailbox, "LIMITS", LIMITS._replace(body=1000))
    url(Home(tmp_path), "a.1")
    folder = box(Home(tmp_path), "a.1")
    for name in "123":
        write(folder / QUESTIONS / name, HEAD, bytes(800))
    taken = [mailbox._take_requests(folder) for _ in range(3)]
    assert [len(requests) for requests in taken] == [2, 1, 0]


def test_an_answer_is_written_into_the_mailbox_alone(tmp_path):
    home = Home(tmp_path / "h")
    url(home, "a.1")
    (tmp_path / "outside").mkdir()
    answers = box(home, "a.1") / ANSWERS
    answers.rmdir()
    answers.symlink_to(tmp_path / "outside")
    with pytest.raises(OSError):
        write(answers / "authorized_keys", {}, b"a key")
    assert os.listdir(tmp_path / "outside") == []
    with pytest.raises(FileNotFoundError):
        write(box(home, "gone.1") / ANSWERS / "q", {}, b"")
