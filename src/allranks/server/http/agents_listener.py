"""The agents' door for nodes on other hosts: their routes and no one else's, under TLS.

It stands open on the addresses that route to the nodes of a home's computes, on one port, and both
are kept for good: agents know the server by nothing else. The certificate is the home's own; agents
are told its fingerprint and speak to no other.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import hashlib
import json
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from allranks.agent.network import ports
from allranks.errors import AllranksError, ServerError
from allranks.server.http.connection_limit import Listener
from allranks.server.http.slow_clients import Patient
from allranks.settings import Home

log = logging.getLogger("allranks.door")

App = Callable[..., Any]

_YEARS = 50
# Seconds between tries to open it, and the most that are spoken to at once.
_AGAIN = 5.0
_MOST = 4096


class AgentsListener:
    """To ``app``, the agents' routes. ``open``, ``keep_open`` and ``close`` are for the server's
    event loop, the rest for any thread. ``opened`` is called when one stands open that did not."""

    def __init__(self, home: Home, app: App, opened: Callable[[], None]) -> None:
        self._home, self._app, self._opened = home, app, opened
        self._open: dict[str, tuple[Server, asyncio.Task[None]]] = {}
        self._making = threading.Lock()
        # Addresses where it should stand open and does not, and why.
        self.trouble: dict[str, str] = {}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the home's certificate, made when it is first asked for."""
        text = self.certificate().read_text()
        pem = text[text.index(ssl.PEM_HEADER) :]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    def url(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return f"https://{host}:{self._port()}"

    async def open(self, address: str) -> None:
        """Listen there, if that is not done yet; raises ServerError when it cannot be."""
        if address in self._open and not self._open[address][1].done():
            return
        try:
            made = self._config()
            listening = self._listen(address)
        except AllranksError as error:
            self.trouble[address] = error.message
            raise
        server = Server(made)
        self._open[address] = (server, asyncio.create_task(server.serve(sockets=[listening])))
        if self.trouble.pop(address, None):
            self._opened()

    async def keep_open(self, addresses: set[str]) -> None:
        """Open it at all of them, and again every few seconds where it cannot be yet: an interface
        may come up later than this server."""
        wanted = set(addresses)
        while True:
            for address in sorted(wanted | self.trouble.keys()):
                try:
                    await self.open(address)
                except AllranksError as error:
                    log.error("%s", error)
            wanted = set()
            await asyncio.sleep(_AGAIN)

    async def close(self) -> None:
        for server, _ in self._open.values():
            server.should_exit = True
        await asyncio.gather(*(task for _, task in self._open.values()), return_exceptions=True)

    def _config(self) -> uvicorn.Config:
        try:
            return config(self._app, str(self.certificate()), _MOST)
        except (OSError, ValueError) as error:
            raise ServerError(
                f"the home's certificate cannot be used: {error}",
                where=str(self._home.certificate),
                hint="remove that file, and start the server again: it makes a new one (agents "
                "that run now do not know that)",
            ) from error

    def _listen(self, address: str) -> socket.socket:
        port = self._port()
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return Listener(family, (address, port))
        except OSError as error:
            raise ServerError(
                f"the agents' door cannot be opened: {(error.strerror or str(error)).lower()}",
                where=f"{address}:{port}",
                hint="is this still an address of this machine (`ip address`), and the port free? "
                "Another address: allranks compute update NAME --server-address ADDRESS",
            ) from error

    def _port(self) -> int:
        """The home's, chosen once: agents that run know no other."""
        with self._making:
            if not self._home.door.exists():
                held = ports.hold(1)
                (number,) = ports.numbers(held)
                ports.release(held)
                write(self._home.door, json.dumps({"port": number}).encode())
        return int(json.loads(self._home.door.read_text())["port"])

    def certificate(self) -> Path:
        """The file with the home's key and certificate; made, for its owner only, when missing."""
        with self._making:
            if not self._home.certificate.exists():
                write(self._home.certificate, _made())
        return self._home.certificate


def config(app: App, certificate: str | None, most: int) -> uvicorn.Config:
    """Of a server beside the home's own, which speaks to so many at once. Raises OSError or
    ValueError for a certificate that cannot be used."""
    made = uvicorn.Config(
        app,
        http=Patient,
        loop="asyncio",  # see `listener`: uvloop accepts past the socket
        ssl_certfile=certificate,
        log_config=None,
        access_log=False,
        lifespan="off",
        limit_concurrency=most,
        timeout_graceful_shutdown=1,
    )
    made.load()
    return made


class Server(uvicorn.Server):
    """One of several of a process."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: the home's own server ends this one with it."""
        yield


def write(file: Path, content: bytes) -> None:
    """Put it there whole, for its owner only."""
    beside = Path(f"{file}.new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(content)
    beside.replace(file)


def _made() -> bytes:
    """A key and its certificate, as PEM."""
    # Imported here: only homes with clusters need one, once.
    from cryptography import x509  # lazy: see above
    from cryptography.hazmat.primitives import hashes, serialization  # lazy: see above
    from cryptography.hazmat.primitives.asymmetric import ec  # lazy: see above

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "allranks agents' door")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Agents compare its hash, and no dates: their node's clock may be wrong.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return private + made.public_bytes(serialization.Encoding.PEM)
