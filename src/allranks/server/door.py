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
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import uvicorn

from allranks.agent import ports
from allranks.errors import AllranksError, ServerError
from allranks.settings import Home

log = logging.getLogger("allranks.door")

_YEARS = 50


class Door:
    """``open`` and ``close`` are for the server's event loop, the rest for any thread."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._app: Callable[..., Any] | None = None
        self._open: dict[str, tuple[_Server, asyncio.Task[None]]] = {}
        # Addresses where it should stand open and does not, and why.
        self.trouble: dict[str, str] = {}

    def leads_to(self, app: Callable[..., Any]) -> None:
        self._app = app

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the home's certificate, made when it is first asked for."""
        text = _certificate(self._home.certificate).read_text()
        pem = text[text.index(ssl.PEM_HEADER) :]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    def url(self, address: str) -> str:
        host = f"[{address}]" if ":" in address else address
        return f"https://{host}:{self._port(address)}"

    async def open(self, address: str) -> None:
        """Listen there, if that is not done yet; raises ServerError when it cannot be."""
        if address in self._open:
            return
        try:
            listening = self._listen(address)
        except AllranksError as error:
            self.trouble[address] = error.message
            raise
        self.trouble.pop(address, None)
        file = str(_certificate(self._home.certificate))
        config = uvicorn.Config(
            self._app or _nobody,
            ssl_certfile=file,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        server = _Server(config)
        task = asyncio.create_task(server.serve(sockets=[listening]))
        self._open[address] = (server, task)

    async def open_all(self, addresses: set[str]) -> None:
        """As ``open``; what cannot be opened is told in the log and by ``trouble``."""
        for address in sorted(addresses):
            try:
                await self.open(address)
            except AllranksError as error:
                log.error("%s", error)

    async def close(self) -> None:
        for server, _ in self._open.values():
            server.should_exit = True
        await asyncio.gather(*(task for _, task in self._open.values()), return_exceptions=True)

    def _listen(self, address: str) -> socket.socket:
        port = self._port(address)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((address, port))
        except OSError as error:
            listening.close()
            raise ServerError(
                f"the agents' door cannot be opened: {(error.strerror or str(error)).lower()}",
                where=f"{address}:{port}",
                hint="is this still an address of this machine (`ip address`), and the port free? "
                "Another address: allranks compute update NAME --server-address ADDRESS",
            ) from error
        listening.listen(512)
        return listening

    def _port(self, address: str) -> int:
        try:
            return int(json.loads(self._home.door.read_text())["port"])
        except (OSError, ValueError, KeyError, TypeError):
            held = ports.hold(1)
            (number,) = ports.numbers(held)
            ports.release(held)
            self._home.door.write_text(json.dumps({"port": number}))
            return number


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """None: the home's own server ends this one with it."""
        yield


async def _nobody(scope: Any, receive: Any, send: Any) -> None:
    raise RuntimeError("the door leads nowhere")


def _certificate(file: Path) -> Path:
    """The file with the home's key and certificate; made, for its owner only, when missing."""
    if file.exists():
        return file
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
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ) + made.public_bytes(serialization.Encoding.PEM)
    beside = file.with_suffix(".new")
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.write(pem)
    beside.replace(file)
    return file
