"""Where the two ends of a channel meet in the server: who may, and what is left of it."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.channel import PROTOCOL
from allranks.errors import AllranksError, NotFound, Unauthorized, UsageError
from allranks.http_client import Client
from tests.server.serving import Served, served
from tests.support import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "h") as found:
        found.submit("a")
        found.submit("b")
        until(lambda: found.people.get("/api/v1/jobs/b").json()["status"] != "NotStarted")
        hello = [{"kind": "hello", "at": time.time(), "node": 0, "launch": 1, "seq": 1, "data": {}}]
        headers = found.as_(found.auth.agent_token("a", 1))
        sent = found.people.post("/agent/v1/0/events", json=hello, headers=headers)
        assert sent.status_code == 200, sent.text
        yield found


def opened(server: Served) -> int:
    """The number of a new channel into the job a."""
    answer = server.people.post("/api/v1/jobs/a/channels", json={"port": 80})
    assert answer.status_code == 201, answer.text
    return int(answer.json()["number"])


def refused(server: Served, token: str, path: str, protocol: str = PROTOCOL) -> AllranksError:
    with Client(server.url, token) as client, pytest.raises(AllranksError) as caught:
        client.upgrade(path, protocol)
    assert caught.value.hint
    return caught.value


@pytest.mark.medium
def test_only_the_node_s_own_agent_meets_the_client(server: Served) -> None:
    path = f"channels/{opened(server)}/0"
    own, other = (server.auth.agent_token(job, 1) for job in "ab")
    assert isinstance(refused(server, other, f"/agent/v1/0/{path}"), NotFound)
    assert isinstance(refused(server, own, f"/agent/v1/1/{path}"), Unauthorized)
    assert isinstance(refused(server, own, f"/api/v1/jobs/a/{path}"), Unauthorized)
    assert isinstance(refused(server, server.token(), f"/agent/v1/0/{path}"), Unauthorized)
    assert isinstance(refused(server, server.token(), f"/api/v1/jobs/b/{path}"), NotFound)


@pytest.mark.medium
def test_a_request_that_is_no_upgrade_does_not_wait(server: Served) -> None:
    path = f"/api/v1/jobs/a/channels/{opened(server)}/0"
    answer = server.people.post(path)  # as through a proxy that passes no upgrades
    assert answer.status_code == 400
    assert "asks for no upgrade" in answer.json()["message"]
    assert "upgrade" in answer.json()["hint"]
    assert isinstance(refused(server, server.token(), path, "another"), UsageError)


@pytest.mark.medium
def test_of_ends_that_vanished_before_they_met_nothing_is_left(server: Served) -> None:
    number = opened(server)
    path = f"/api/v1/jobs/a/channels/{number}/0"
    agent = f"/agent/v1/0/channels/{number}/0"
    for way, token in ((path, server.token()), (agent, server.auth.agent_token("a", 1))):
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as gone:
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            head = f"POST {way} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
            head += f"connection: upgrade\r\nupgrade: {PROTOCOL}\r\ncontent-length: 0\r\n\r\n"
            gone.sendall(head.encode())
    until(lambda: isinstance(refused(server, server.token(), path), NotFound))
