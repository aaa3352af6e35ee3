"""The rendezvous store, as Horovod's gloo controller uses it: over HTTP, from many ranks."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from allranks.agent.programs import horovod_rendezvous


@pytest.fixture
def url() -> Iterator[str]:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        argv = [sys.executable, "-I", "-S", horovod_rendezvous.__file__, str(bound.fileno())]
        server = subprocess.Popen(argv, pass_fds=[bound.fileno()], stderr=subprocess.PIPE)
        found = f"http://127.0.0.1:{bound.getsockname()[1]}"
    yield found
    server.terminate()
    _, said = server.communicate(timeout=120)
    assert said == b""


@pytest.fixture
def client(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url, transport=httpx.HTTPTransport(retries=20)) as found:
        yield found


@pytest.mark.medium
def test_a_key_is_404_until_it_is_put(client: httpx.Client):
    assert client.get("/global/rank_0").status_code == 404
    assert client.put("/global/rank_0", content=b"\x00\xffaddress").status_code == 200
    assert client.get("/global/rank_0").content == b"\x00\xffaddress"


@pytest.mark.medium
def test_scopes_are_apart_and_keys_can_be_put_again(client: httpx.Client):
    client.put("/local_0/0", content=b"a")
    client.put("/cross_0/0", content=b"b")
    client.put("/local_0/0", content=b"c")
    assert client.get("/local_0/0").content == b"c"
    assert client.get("/cross_0/0").content == b"b"


@pytest.mark.medium
def test_what_is_deleted_is_404_again_and_twice_is_once(client: httpx.Client):
    client.put("/global/0", content=b"a")
    assert client.delete("/global/0").status_code == 200
    assert client.delete("/global/0").status_code == 200
    assert client.get("/global/0").status_code == 404


@pytest.mark.medium
def test_an_empty_value_is_a_value(client: httpx.Client):
    client.put("/global/0", content=b"")
    assert client.get("/global/0").status_code == 200


@pytest.mark.medium
def test_many_ranks_meet(url: str):
    """Each puts its own and asks for all others' until they are there."""

    def rank(number: int) -> list[bytes]:
        transport = httpx.HTTPTransport(retries=20)
        with httpx.Client(base_url=url, transport=transport) as client:
            client.put(f"/global/{number}", content=b"%d" % number)
            found = []
            for other in range(16):
                while (answer := client.get(f"/global/{other}")).status_code == 404:
                    pass
                found.append(answer.content)
            return found

    with ThreadPoolExecutor(16) as pool:
        for seen in pool.map(rank, range(16)):
            assert seen == [b"%d" % number for number in range(16)]


@pytest.mark.medium
def test_a_body_of_no_length_is_refused(client: httpx.Client):
    assert client.put("/global/0", content=iter([b"a"])).status_code == 411
