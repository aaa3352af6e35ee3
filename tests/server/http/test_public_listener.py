"""The server on an address that others can call: TLS, who it is, and connections that dawdle."""

import datetime
import ipaddress
import json
import socket
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from allranks.agent.network import ports
from allranks.errors import Unauthorized, Unreachable, UsageError
from allranks.http_client import Client
from allranks.http_limits import header_limits
from tests.server.serving import Served, held_to, served

# Another address of every machine's own.
HOST = "127.0.0.2"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("front") / "h") as found:
        yield found


def port() -> int:
    held = ports.hold(1)
    (number,) = ports.numbers(held)
    ports.release(held)
    return number


def opened(server: Served, **asked: object) -> dict[str, str]:
    asked = {"host": HOST, "port": port(), **asked}
    told = server.people.put("/api/v1/server/front", json=asked)
    assert told.status_code == 200, told.text
    found: dict[str, str] = told.json()
    return found


def who(url: str, token: str, fingerprint: str = "") -> str:
    with Client(url, token, timeout=5, fingerprint=fingerprint) as client:
        return str(client.json("GET", "/api/v1/server")["user"])


@pytest.mark.medium
def test_it_is_known_by_its_fingerprint_and_wants_a_token(server: Served) -> None:
    told = opened(server)
    assert told["url"].startswith(f"https://{HOST}:")
    assert who(told["url"], server.token(), told["fingerprint"]) == "owner"
    with pytest.raises(Unauthorized):
        who(told["url"], "", told["fingerprint"])
    with pytest.raises(Unreachable, match="does not match"):
        who(told["url"], server.token(), "0" * 64)
    with pytest.raises(Unreachable, match="is not trusted") as caught:
        who(told["url"], server.token())
    assert f"allranks login {told['url']}" in str(caught.value.hint)
    with pytest.raises(Unreachable):
        who(told["url"].replace("https", "http"), server.token())
    assert stat.S_IMODE(server.home.front.stat().st_mode) == 0o600


def test_a_token_never_leaves_before_it_is_known_who_listens() -> None:
    with pytest.raises(UsageError, match="not the URL"):
        Client("http://127.0.0.1:1", "secret", fingerprint="0" * 64)


def test_old_tls_is_not_spoken(server: Served) -> None:
    told = opened(server)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with (
        socket.create_connection((HOST, int(told["url"].rpartition(":")[2]))) as line,
        pytest.raises(ssl.SSLError),
    ):
        context.wrap_socket(line)


@pytest.mark.medium
def test_with_a_certificate_that_somebody_vouches_for(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "own.pem"
    file.write_bytes(certificate(HOST))
    told = opened(server, certificate=str(file))
    assert told["fingerprint"] == ""
    with pytest.raises(Unreachable, match="is not trusted"):
        who(told["url"], server.token())
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    assert who(told["url"], server.token()) == "owner"
    file.write_bytes(certificate("127.0.0.3"))
    told = opened(server, certificate=str(file))
    with pytest.raises(Unreachable, match="is not trusted"):
        who(told["url"], server.token())


@pytest.mark.parametrize(
    "asked",
    [
        {"host": "192.0.2.1", "port": 7443},
        {"host": "no such host"},
        {"host": "a" * 300},
        {"host": "\0"},
        {"host": HOST, "certificate": "/no/such.pem"},
        {"host": HOST, "port": 0},
        {"host": HOST, "port": 70000},
    ],
    ids=str,
)
def test_what_cannot_be(server: Served, asked: dict[str, object]) -> None:
    """And where it stood open, it still does."""
    stood = opened(server)
    told = server.people.put("/api/v1/server/front", json=asked)
    assert told.status_code in (400, 503), told.text
    assert json.loads(told.content)["hint"]
    assert who(stood["url"], server.token(), stood["fingerprint"]) == "owner"


@pytest.mark.medium
@pytest.mark.medium
@pytest.mark.parametrize("same", [False, True])
def test_it_moves_and_closes_on_requests_that_it_carried_itself(server: Served, same: bool) -> None:
    """They are answered, by the address that is left."""
    first = opened(server)
    number = int(first["url"].rpartition(":")[2]) if same else port()
    to = {"host": "127.0.0.3", "port": number}
    with Client(first["url"], server.token(), fingerprint=first["fingerprint"]) as client:
        second = client.json("PUT", "/api/v1/server/front", to)
    assert second["url"] == f"https://127.0.0.3:{number}"
    assert who(second["url"], server.token(), second["fingerprint"]) == "owner"
    with pytest.raises(Unreachable):
        who(first["url"], server.token(), first["fingerprint"])
    with Client(second["url"], server.token(), fingerprint=second["fingerprint"]) as client:
        assert client.json("PUT", "/api/v1/server/front", {"host": None})["url"] is None
    assert not server.home.front.exists()


def test_another_address_at_the_same_port(server: Served) -> None:
    stood = opened(server)
    same = int(stood["url"].rpartition(":")[2])
    refused = server.people.put("/api/v1/server/front", json={"host": "192.0.2.1", "port": same})
    assert refused.status_code in (400, 503), refused.text
    assert who(stood["url"], server.token(), stood["fingerprint"]) == "owner"
    told = opened(server, host="0.0.0.0", port=same)
    url = stood["url"].replace(HOST, "127.0.0.3")
    assert who(url, server.token(), told["fingerprint"]) == "owner"


def test_without_tls_only_where_that_was_said(server: Served) -> None:
    told = opened(server, tls=False)
    assert (told["url"][:5], told["fingerprint"]) == ("http:", "")
    assert who(told["url"], server.token()) == "owner"


@pytest.mark.medium
def test_the_next_server_stands_there_again_until_it_is_told_not_to(tmp_path: Path) -> None:
    with served(tmp_path / "h") as first:
        told = opened(first)
    with served(tmp_path / "h") as second:
        assert who(told["url"], second.token(), told["fingerprint"]) == "owner"
        gone = second.people.put("/api/v1/server/front", json={"host": None})
        held_to(gone)
        with pytest.raises(Unreachable):
            who(told["url"], second.token(), told["fingerprint"])
        assert not second.home.front.exists()


@pytest.mark.medium
def test_who_dawdles_is_hung_up_on(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_limits, "HEAD", 0.3)
    address = ("127.0.0.1", int(server.url.rpartition(":")[2]))
    shown = f"host: localhost\r\nauthorization: Bearer {server.token()}\r\n".encode()
    for said in (b"", b"GET /api/v1/jobs HTTP/1.1\r\nhost: loc"):
        with socket.create_connection(address, 20) as line:
            line.sendall(said)
            assert line.recv(1) == b""
    with socket.create_connection(address, 20) as line:  # a body may take its time
        line.sendall(b"POST /api/v1/blobs/missing HTTP/1.1\r\ncontent-length: 2\r\n" + shown)
        line.sendall(b"content-type: application/json\r\n\r\n")
        line.settimeout(1.0)
        with pytest.raises(TimeoutError):
            line.recv(1)
        line.settimeout(20)
        line.sendall(b"[]")
        assert line.recv(12) == b"HTTP/1.1 200"


def certificate(address: str) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(names, critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)
