"""The way to MLflow from nodes of other hosts: a plain port here, the known certificate there."""

import hashlib
import http.client
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import psutil
import pytest

from allranks.agent.launch import mlflow_address
from allranks.agent.transport.identity import AgentIdentity
from allranks.server.http.agents_listener import AgentsListener
from allranks.settings import Home
from tests.support import children, until

TOLD = {"MLFLOW_RUN_ID": "x"}


class There(NamedTuple):
    url: str
    fingerprint: str


class Echo(BaseHTTPRequestHandler):
    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(hashlib.sha256(body).hexdigest().encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def there(tmp_path: Path) -> Iterator[There]:
    """A server with the certificate that a home's door shows."""
    door = AgentsListener(Home(tmp_path), lambda *_: None, lambda: None)
    fingerprint = door.fingerprint
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(Home(tmp_path).certificate)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield There(f"https://127.0.0.1:{server.server_address[1]}", fingerprint)
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    yield
    for each in children("relay.py"):
        each.kill()
        each.wait()


def where(url: str, fingerprint: str = "") -> AgentIdentity:
    return AgentIdentity(url, "token", fingerprint, 1, 0, Path("/x"), "127.0.0.1", 1)


def put(uri: str, body: bytes) -> bytes:
    connection = http.client.HTTPConnection(urlsplit(uri).netloc, timeout=120)
    try:
        connection.request("PUT", "/mlflow/x", body)
        return connection.getresponse().read()
    finally:
        connection.close()


@pytest.mark.filterwarnings("ignore:subprocess")  # the relay outlives the object, on purpose
@pytest.mark.medium
def test_what_is_sent_arrives_whole(there: There) -> None:
    found = mlflow_address.variables(where(*there), TOLD)
    assert found["MLFLOW_RUN_ID"] == "x"
    body = bytes(range(256)) * 20_000
    assert put(found["MLFLOW_TRACKING_URI"], body) == hashlib.sha256(body).hexdigest().encode()


@pytest.mark.filterwarnings("ignore:subprocess")
@pytest.mark.medium
def test_another_certificate_is_not_spoken_to(there: There) -> None:
    found = mlflow_address.variables(where(there.url, "0" * 64), TOLD)
    with pytest.raises((ConnectionError, http.client.HTTPException)):
        put(found["MLFLOW_TRACKING_URI"], b"x")


def test_on_the_servers_machine_there_is_none_and_without_a_network_nothing() -> None:
    here = mlflow_address.variables(where("http://127.0.0.1:7"), TOLD)
    assert here["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:7/mlflow"
    assert mlflow_address.variables(where("mailbox:/x"), TOLD) == {}
    assert mlflow_address.variables(where("http://127.0.0.1:7"), None) == {}


@pytest.mark.filterwarnings("ignore:subprocess")
@pytest.mark.medium
def test_each_attempt_has_one_and_keeps_nothing_of_those_before(there: There) -> None:
    mlflow_address.variables(where(*there), TOLD)
    before = psutil.Process().num_fds()
    for _ in range(3):
        mlflow_address.variables(where(*there), TOLD)
    assert psutil.Process().num_fds() == before
    until(lambda: len(children("relay.py")) == 1)
