"""Waits of an agent, which end with the server's orders."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.agent.lifecycle.agent_calls import AgentCalls, Leave, Stopped
from allranks.agent.transport.inbox import Inbox
from allranks.errors import NotFound, Unreachable
from allranks.settings import Clocks
from allranks.statuses import Reason


class Server:
    """Answers after a call that fails, and orders a stop after some pieces."""

    def __init__(self, inbox: Inbox, pieces: int) -> None:
        self.inbox, self.pieces = inbox, pieces
        self.failures: list[Exception] = [Unreachable("away")]
        self.paths: list[str] = []

    def client(self, timeout: float) -> Any:
        return self

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def download(self, path: str) -> Iterator[bytes]:
        self.paths.append(path)
        if self.failures:
            raise self.failures.pop()
        for number in range(10):
            if number == self.pieces:
                self.inbox.put({"do": "stop", "why": "CANCELED", "attempt": 1})  # type: ignore[typeddict-item]
            yield b"x"


def calls(pieces: int) -> tuple[AgentCalls, Server]:
    inbox = Inbox()
    inbox.put({"do": "prepare", "attempt": 1})  # type: ignore[typeddict-item]
    server = Server(inbox, pieces)
    link: Any = SimpleNamespace(server=server, attempt=1, silent_for=lambda: 0.0)
    where: Any = SimpleNamespace(node=2)
    return AgentCalls(where, link, None, inbox, Clocks(patience=1.0)), server  # type: ignore[arg-type]


def test_a_download_goes_on_when_the_server_is_there_again(tmp_path: Path) -> None:
    made, server = calls(pieces=11)
    made.download("code/1", tmp_path / "code")
    assert (tmp_path / "code").read_bytes() == b"x" * 10
    assert server.paths == ["/agent/v1/2/code/1"] * 2
    server.failures = [NotFound("no such code")]
    with pytest.raises(NotFound):
        made.download("code/1", tmp_path / "code")


def test_a_stop_ends_a_download_between_two_pieces(tmp_path: Path) -> None:
    made, server = calls(pieces=3)
    server.failures.clear()
    with pytest.raises(Stopped) as stopped:
        made.download("code/1", tmp_path / "code")
    assert stopped.value.why is Reason.CANCELED
    assert (tmp_path / "code").stat().st_size < 10


def test_waits_end_when_the_server_is_away_for_too_long() -> None:
    made, _ = calls(pieces=0)
    made.link.silent_for = lambda: 2.0  # type: ignore[method-assign]
    with pytest.raises(Leave):
        made.pause(0.1)
