"""Large bodies that are received past uvicorn, and the connection afterwards."""

import hashlib
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.errors import Conflict
from allranks.http_client import Client
from allranks.server.http.large_body import SIZE
from tests.server.http.test_public_listener import opened
from tests.server.serving import Served, served
from tests.support import until

pytestmark = pytest.mark.medium

CONTENT = random.Random(3).randbytes(2 * SIZE + SIZE // 2 + 1)
DIGEST = hashlib.sha256(CONTENT).hexdigest()
PART = f"/api/v1/blobs/{DIGEST}/part"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "h") as found:
        yield found


@pytest.fixture(params=["plain", "tls"])
def client(server: Served, request: pytest.FixtureRequest) -> Iterator[Client]:
    url, fingerprint = server.url, ""
    if request.param == "tls":
        told = opened(server)
        url, fingerprint = told["url"], told["fingerprint"]
    with Client(url, server.token(), fingerprint=fingerprint) as made:
        yield made


def put(client: Client, offset: int, data: bytes) -> bool:
    path = f"{PART}?offset={offset}&size={len(CONTENT)}"
    answer: dict[str, bool] = json.loads(client.call("PUT", path, data).body)
    return answer["complete"]


def test_it_arrives_and_its_connection_goes_on(server: Served, client: Client) -> None:
    client.reach()
    connection = client._socket
    first = SIZE + 5
    assert not put(client, 0, CONTENT[:first])
    with pytest.raises(Conflict):  # all that is sent is read
        put(client, 1, CONTENT[1:])
    assert client.json("GET", PART)["size"] == first
    assert put(client, first, CONTENT[first:])
    assert client._socket is connection
    assert server.home.blobs.joinpath(DIGEST[:2], DIGEST).read_bytes() == CONTENT


def test_what_came_before_a_cut_is_kept(server: Served) -> None:
    host, port = server.url.removeprefix("http://").split(":")
    head = (
        f"PUT {PART}?offset=0&size={len(CONTENT)} HTTP/1.1\r\nhost: {host}:{port}\r\n"
        f"authorization: Bearer {server.token()}\r\ncontent-length: {len(CONTENT)}\r\n\r\n"
    )
    with socket.create_connection((host, int(port))) as raw:
        raw.sendall(head.encode() + CONTENT[: SIZE + 7])
    with Client(server.url, server.token()) as client:
        until(lambda: client.json("GET", PART)["size"] == SIZE + 7)
        assert put(client, SIZE + 7, CONTENT[SIZE + 7 :])
