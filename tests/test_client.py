"""The HTTP client against sockets that answer as they are told: well, badly, or not at all."""

import json
import socket
import threading
from collections.abc import Iterator

import pytest

from allranks import http_client
from allranks.errors import NotFound, Problem, ServerError, SpecError, Unreachable, UsageError
from allranks.http_client import Client
from allranks.sdk.submit.send import send


class Peer:
    """Answers each connection in turn with fixed bytes, then closes it."""

    def __init__(self) -> None:
        self.answers: list[bytes] = []
        self.asked: list[bytes] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection:
                while self.answers:
                    request = connection.recv(65536)
                    if not request:
                        break
                    self.asked.append(request)
                    answer = self.answers.pop(0)
                    connection.sendall(answer.removesuffix(b"CLOSE"))
                    if answer.endswith(b"CLOSE"):
                        break

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def client(peer: Peer) -> Iterator[Client]:
    made = Client(peer.url, "t0ken", timeout=5)
    yield made
    made.close()


def reply(body: bytes, status: str = "200 OK", more: str = "") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n{more}\r\n".encode() + body


def test_json_and_the_token(peer, client):
    peer.answers = [reply(b'{"a": 1}'), reply(b"")]
    assert client.json("POST", "/x", {"b": 2}) == {"a": 1}
    assert b"authorization: Bearer t0ken\r\n" in peer.asked[0]
    assert peer.asked[0].endswith(b'\r\n\r\n{"b": 2}')
    assert client.json("GET", "/y") is None


def test_chunked_bodies_and_lines(peer, client):
    body = b"4\r\none\n\r\n6\r\ntwo\nth\r\n3\r\nree\r\n0\r\n\r\n"
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    peer.answers = [head + body]
    assert list(client.stream("GET", "/")) == [b"one", b"two", b"three"]


def test_a_stream_that_breaks_off_is_told(peer, client):
    peer.answers = [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\none\n\r\n9\r\ntCLOSE"
    ]
    lines = client.stream("GET", "/")
    assert next(lines) == b"one"
    with pytest.raises(Unreachable, match="closed the connection"):
        next(lines)


def test_a_kept_connection_that_went_away_is_opened_anew(peer, client):
    peer.answers = [reply(b"1") + b"CLOSE", reply(b"2")]
    assert client.json("GET", "/") == 1
    assert client.json("GET", "/") == 2


def test_errors_are_the_exceptions_they_were(peer, client):
    problems = SpecError([Problem("wrong", "inputs.x", 3, "mend")], file="job.yml")
    peer.answers = [
        reply(json.dumps(problems.body()).encode(), "422 Unprocessable Content"),
        reply(json.dumps(NotFound("no job", hint="list").body()).encode(), "404 Not Found"),
        reply(b"<html>", "502 Bad Gateway"),
    ]
    with pytest.raises(SpecError) as refused:
        client.json("GET", "/")
    assert str(refused.value) == "job.yml:3: inputs.x: wrong"
    with pytest.raises(NotFound, match="no job") as caught:
        client.json("GET", "/")
    assert caught.value.hint == "list"
    with pytest.raises(ServerError, match="answered 502"):
        client.json("GET", "/")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH\r\n\r\nCLOSE",
        b"CLOSE",
        b"HTTP/1.1 abc\r\n\r\nCLOSE",
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshortCLOSE",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\nCLOSE",
    ],
)
def test_what_does_not_speak_http_is_unreachable(peer, client, answer):
    peer.answers = [answer]
    with pytest.raises(Unreachable):
        client.json("GET", "/")


def test_who_only_accepts_connections_is_not_there(peer, client):
    peer.answers = [b"CLOSE"]
    with pytest.raises(Unreachable):
        client.reach()
    peer.answers = [reply(b"{}", "401 Unauthorized")]
    client.reach()


def test_nobody_there():
    with pytest.raises(Unreachable, match="no server answers"):
        Client("http://127.0.0.1:1").json("GET", "/")


@pytest.mark.parametrize("url", ["", "x", "http://", "https://u@h:1", "http://h", "http://h:x"])
def test_what_is_no_url(url):
    with pytest.raises(UsageError):
        Client(url)


def test_a_part_of_a_file(peer, client):
    peer.answers = [reply(b"cdef", "206 Partial Content"), reply(b"odd", "416 No"), reply(b"")]
    told, pieces = client.part("/x", (2, 6))
    assert (told.status, b"".join(pieces)) == (206, b"cdef")
    assert b"\r\nrange: bytes=2-5\r\n\r\n" in peer.asked[0]
    told, pieces = client.part("/x", (9, 12))
    assert (told.status, b"".join(pieces)) == (416, b"odd")
    assert client.call("GET", "/y").body == b""


def test_pieces_come_as_they_are_sent_and_what_broke_is_told(peer, client):
    peer.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234CLOSE", reply(b"next")]
    _, pieces = client.part("/x")
    assert next(pieces) == b"1234"
    with pytest.raises(Unreachable, match="closed the connection"):
        next(pieces)
    assert client.call("GET", "/y").body == b"next"


def test_a_body_that_is_left_halfway_is_not_taken_for_the_next_reply(peer, client):
    peer.answers = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n1234", reply(b"next")]
    _, pieces = client.part("/x")
    assert next(pieces) == b"1234"
    pieces.close()
    assert client.call("GET", "/y").body == b"next"


def test_a_submit_that_is_broken_off_may_have_been_taken(peer, client):
    submission = {"spec": {"name": "half-way"}}
    for answer in (b"CLOSE", reply(b"x" * 99)[:-9] + b"CLOSE"):
        peer.answers = [answer]
        with pytest.raises(Unreachable) as caught:
            send(client, submission, None)
        hint = "half-way may have been submitted: check with `allranks job show half-way`"
        assert caught.value.hint == hint
    with socket.create_server(("127.0.0.1", 0)) as gone:
        url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    with pytest.raises(Unreachable) as caught:
        send(Client(url), submission, None)
    assert caught.value.hint == "see `allranks server status`"


@pytest.mark.parametrize("status", ["200 OK", "404 Not Found"])
def test_an_answer_without_end_fills_no_memory(peer, client, monkeypatch, status):
    monkeypatch.setattr(http_client, "_LARGEST", 1 << 20)
    head = f"HTTP/1.1 {status}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    endless = head + (b"10000\r\n" + bytes(1 << 16) + b"\r\n") * 32
    calls = [lambda: client.call("GET", "/x")]
    if status != "200 OK":
        calls += [
            lambda: client.part("/x"),
            lambda: [*client.stream("GET", "/x")],
            lambda: client.upgrade("/x", "p"),
        ]
    for call in calls:
        peer.answers = [endless + b"CLOSE"]
        with pytest.raises(Unreachable, match="too large"):
            call()
        client.close()
