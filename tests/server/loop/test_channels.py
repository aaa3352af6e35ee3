"""Where the two ends of a channel meet in the server: who may, and what is left of it."""

from __future__ import annotations

import concurrent.futures
import contextlib
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.channel import PROTOCOL
from allranks.errors import AllranksError, Conflict, NotFound, Unauthorized, UsageError
from allranks.http_client import Client
from allranks.server.loop import channels
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


def opened(server: Served, token: str = "") -> int:
    """The number of a new channel into the job a."""
    headers = server.as_(token or server.token())
    answer = server.people.post("/api/v1/jobs/a/channels", json={"port": 80}, headers=headers)
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


def is_gone(server: Served, path: str) -> bool:
    """Whether the channel has ended. A client that is faster than those before it meets the agent's
    end, and leaves."""
    with Client(server.url, server.token()) as client, contextlib.suppress(Conflict):
        try:
            client.upgrade(path, PROTOCOL).close()
        except NotFound:
            return True
    return False


@pytest.mark.medium
def test_of_ends_that_vanished_before_they_met_nothing_is_left(server: Served) -> None:
    number = opened(server)
    path = f"/api/v1/jobs/a/channels/{number}/0"
    agent = f"/agent/v1/0/channels/{number}/0"
    for way, token in ((path, server.token()), (agent, server.auth.agent_token("a", 1))):
        host, _, port = server.url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as gone:
            head = f"POST {way} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
            head += f"connection: upgrade\r\nupgrade: {PROTOCOL}\r\ncontent-length: 0\r\n\r\n"
            gone.sendall(head.encode())
    until(lambda: is_gone(server, path))


@pytest.mark.medium
@pytest.mark.parametrize("how", ["revoked", pytest.param("expired", marks=pytest.mark.slow)])
def test_channels_end_with_their_token(server: Served, how: str) -> None:
    asked = {"name": "ann", "role": "admin"}
    days = {"expires_days": 4 / 86400} if how == "expired" else {}
    made = server.people.post("/api/v1/tokens", json=asked | days)
    token, agent_token = made.json()["token"], server.auth.agent_token("a", 1)
    number, waiting = opened(server, token), opened(server, token)
    ends = (
        (token, f"/api/v1/jobs/a/channels/{number}/0"),
        (agent_token, f"/agent/v1/0/channels/{number}/0"),
    )
    with concurrent.futures.ThreadPoolExecutor() as threads:
        client, node = threads.map(
            lambda end: Client(server.url, end[0]).upgrade(end[1], PROTOCOL), ends
        )
    client.sendall(b"passes")
    assert node.recv(100) == b"passes"
    if how == "revoked":
        assert server.people.delete("/api/v1/tokens/ann").status_code == 204
    for end in (client, node):
        end.settimeout(10)
        with end, contextlib.suppress(ConnectionResetError):
            assert end.recv(100) == b""
    if how == "revoked":
        path = f"/agent/v1/0/channels/{waiting}/0"
        assert isinstance(refused(server, agent_token, path), NotFound)


def meet(server: Served, number: int, index: int, query: str = "") -> list[socket.socket]:
    """Both ends of a connection of a channel into the job a."""
    path = f"channels/{number}/{index}"
    ends = [(server.token(), f"/api/v1/jobs/a/{path}")]
    ends.append((server.auth.agent_token("a", 1), f"/agent/v1/0/{path}{query}"))

    def connect(token: str, path: str) -> socket.socket:
        with Client(server.url, token) as client:
            return client.upgrade(path, PROTOCOL)

    with concurrent.futures.ThreadPoolExecutor() as threads:
        return [*threads.map(connect, *zip(*ends, strict=True))]


def entries(server: Served) -> list[str]:
    events = server.people.get("/api/v1/jobs/a/events").json()
    return [event["data"]["message"] for event in events if event["kind"] == "entered"]


@pytest.mark.medium
def test_only_who_gets_in_has_entered(server: Served) -> None:
    opened(server)  # whose ends never come
    ends = meet(server, opened(server), 0, "?refused=1")
    assert entries(server) == []
    ends += meet(server, opened(server), 0)
    assert entries(server) == ["port 80"]
    for end in ends:
        end.close()


@pytest.mark.medium
def test_connections_to_ports_leave_some_for_everybody_else(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "most_per_address", lambda: 8)
    number = opened(server)
    ends = [end for index in range(3) for end in meet(server, number, index)]
    with pytest.raises(Conflict, match="too many connections to ports"):
        meet(server, number, 3)
    for end in ends:
        end.close()
