"""Real stores on loopback: moto's S3, Azurite, an HTTPS site with faults, and a proxy with
faults."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import http.server
import ipaddress
import os
import re
import shutil
import socket
import ssl
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import obstore
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from allranks.agent.data.object_stores import open_store
from allranks.core.data.addresses import Account, Address
from tests.frameworks.environments import ROOT, environment
from tests.support import until

AZURITE = "3.37.0"
# Azurite's published development account.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def answers(port: int) -> bool:
    with contextlib.suppress(OSError):
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        return True
    return False


@contextlib.contextmanager
def serving(argv: Sequence[object], port: int, folder: Path) -> Iterator[None]:
    """Run a server during the block; enter when it answers."""
    with (folder / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [str(each) for each in argv], cwd=folder, stdout=log, stderr=log, stdin=log
        )
    try:
        until(lambda: answers(port), 60)
        yield
    finally:
        server.kill()
        server.wait()


def put(account: Account, files: Mapping[str, bytes]) -> None:
    opened = open_store(account, Address(account.store))
    for name, content in files.items():
        obstore.put(opened, name, content)


@contextlib.contextmanager
def s3(folder: Path) -> Iterator[int]:
    """The port of an S3 with a bucket named ``bucket``."""
    port = free_port()
    program = environment("stores") / "bin" / "moto_server"
    with serving([program, "-H", "127.0.0.1", "-p", port], port, folder):
        make = urllib.request.Request(f"http://127.0.0.1:{port}/bucket", method="PUT")
        urllib.request.urlopen(make, timeout=20).close()
        yield port


@contextlib.contextmanager
def azure(folder: Path) -> Iterator[int]:
    """The port of an Azurite with a container named ``container``, and two that all may read:
    ``public``, and ``objects`` without a listing; skips if npm is missing."""
    program = _azurite()
    port = free_port()
    argv = [program, "--blobHost", "127.0.0.1", "--blobPort", port, "--location", folder]
    with serving([*argv, "--skipApiVersionCheck", "--silent"], port, folder):
        make = (
            "import sys; from azure.storage.blob import BlobServiceClient as B\n"
            "b = B(sys.argv[1], credential=sys.argv[2])\n"
            "b.create_container('container')\n"
            "b.create_container('public', public_access='container')\n"
            "b.create_container('objects', public_access='blob')\n"
        )
        python = environment("stores") / "bin" / "python"
        words = [python, "-c", make, f"http://127.0.0.1:{port}/{ACCOUNT}", KEY]
        subprocess.run(words, check=True, timeout=240)
        yield port


def _azurite() -> Path:
    """Install Azurite unless it is installed; return its program."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("Azurite needs npm")
    kept = ROOT / ".cache" / "environments"
    if not re.fullmatch(r"[\w./+-]+", str(kept)):
        kept = Path.home() / ".cache" / "allranks" / "environments"
    folder = Path(os.environ.get("ALLRANKS_TEST_ENVIRONMENTS", kept)) / f"azurite-{AZURITE}"
    folder = Path(os.environ.get("ALLRANKS_TEST_ENV_AZURITE", folder))
    program = folder / "node_modules" / ".bin" / "azurite-blob"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not program.exists():
            words = [npm, "install", "--silent", "--no-fund", "--no-audit", f"azurite@{AZURITE}"]
            subprocess.run(words, cwd=folder, check=True, stdin=subprocess.DEVNULL, timeout=600)
    return program


class Wire:
    """A TCP proxy that counts the bytes of responses. ``cut_after``: each of the next ``cuts``
    connections is closed after so many bytes. ``hold_after``: after so many bytes in total, large
    responses wait for ``go``."""

    def __init__(self, port: int) -> None:
        self._goal = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.brought = 0
        self.cut_after, self.cuts = 0, 0
        self.hold_after: int | None = None
        self.reached, self._go = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._go.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def go(self) -> None:
        """Release held responses."""
        self.hold_after = None
        self._go.set()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._goal))
                except OSError:
                    near.close()
                    continue
                for way in ((near, far, False), (far, near, True)):
                    threading.Thread(target=self._pump, args=way, daemon=True).start()

    def _pump(self, source: socket.socket, goal: socket.socket, back: bool) -> None:
        mine = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                if back:
                    mine += len(piece)
                    if self._is_cut(mine):
                        break
                    with self._lock:
                        self.brought += len(piece)
                    if (
                        self.hold_after is not None
                        and self.brought > self.hold_after
                        and mine > 1 << 20
                    ):
                        self.reached.set()
                        self._go.wait()
                goal.sendall(piece)
        for each in (source, goal):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _is_cut(self, mine: int) -> bool:
        with self._lock:
            cut = self.cuts > 0 and mine > self.cut_after
            self.cuts -= cut
        return cut


class Site:
    """An HTTPS server of ``files`` by path. ``ranges``: whether it supports range requests;
    ``says``: status and body of every response; ``busy``: of the next responses, one each."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, bytes] = {}
        self.tags: dict[str, str] = {}
        self.ranges = True
        self.says: tuple[int, bytes] | None = None
        self.busy: list[tuple[int, bytes] | None] = []
        self.asked: list[str] = []
        self.certificate = folder / "site.pem"
        _certificate(self.certificate)
        site = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                site.answer(self, False)

            def do_GET(self) -> None:
                site.answer(self, True)

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, to: http.server.BaseHTTPRequestHandler, whole: bool) -> None:
        self.asked.append(f"{to.command} {to.path} {to.headers.get('range', '')}".strip())
        content = self.files.get(to.path)
        status, headers = 200, {}
        says = self.busy.pop(0) if self.busy else self.says
        if says is not None:
            status, content = says
        elif content is None:
            status, content = 404, b"no such thing"
        else:
            tag = self.tags.get(to.path, f'"{hash(content)}"')
            headers = {"etag": tag, "last-modified": "Sat, 21 Nov 2026 08:00:00 GMT"}
            if to.headers.get("if-match") not in (None, tag):
                status, content = 412, b""
            asked = re.fullmatch(r"bytes=(\d+)-(\d+)", to.headers.get("range") or "")
            if asked and self.ranges and status == 200:
                start, end, size = int(asked[1]), int(asked[2]), len(content)
                headers["content-range"] = f"bytes {start}-{min(end, size - 1)}/{size}"
                status, content = 206, content[start : end + 1]
        to.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            to.send_header(name, value)
        to.end_headers()
        if whole:
            to.wfile.write(content)


def _certificate(goal: Path) -> None:
    """Write a key and certificate for 127.0.0.1, and the CA certificate as ``.crt``."""
    now = datetime.datetime.now(datetime.UTC)

    def made(subject: str, key: Any, by: str, signer: Any, authority: bool) -> x509.Certificate:
        named = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in (subject, by)]
        address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
        return (
            x509.CertificateBuilder(*reversed(named), key.public_key(), x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(authority, None), True)
            .add_extension(x509.SubjectAlternativeName([address]), False)
            .sign(signer, hashes.SHA256())
        )

    signer, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = made("tests", signer, "tests", signer, True)
    own = made("127.0.0.1", key, "tests", signer, False)
    plain = serialization.NoEncryption()
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    goal.write_bytes(key.private_bytes(*form, plain) + own.public_bytes(form[0]))
    Path(f"{goal}.crt").write_bytes(authority.public_bytes(form[0]))
