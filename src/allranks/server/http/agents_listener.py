"""The agents' listener for nodes on other hosts: the agents' routes only, over TLS.

It listens on the addresses that route to the nodes of a home's computes, all on one port. Both
never change, because running agents know the server by nothing else. The certificate is the home's
own; agents get its fingerprint and accept no other.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import logging
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from allranks import folder_trees
from allranks.errors import AllranksError, ServerError
from allranks.http_limits.connection_limit import MOST, Listener, raise_file_limit
from allranks.http_limits.server import SecondServer, config
from allranks.settings import Home, read_json

log = logging.getLogger("allranks.agents_listener")

App = Callable[..., Any]

# Before the name of a server whose address changes, such as that of a Service of Kubernetes: agents
# resolve it whenever they connect, and the server listens on all its addresses.
NAMED = "dns:"
# The address that stands for all others of IPv4.
_ALL = "0.0.0.0"

_YEARS = 50
# Seconds between attempts to listen on an address.
_RETRY = 5.0


class AgentsListener:
    """Serves ``app``, the agents' routes. ``open``, ``keep_open`` and ``close`` are for the
    server's event loop; the rest is thread-safe. ``opened`` is called when an address opens after a
    failure."""

    def __init__(self, home: Home, app: App, opened: Callable[[], None]) -> None:
        self._home, self._app, self._opened = home, app, opened
        # By the address that each is bound to.
        self._open: dict[str, tuple[SecondServer, asyncio.Task[None]]] = {}
        self._opening = asyncio.Lock()
        self._making = threading.Lock()
        # Addresses that it should listen on but cannot, with the reason.
        self.trouble: dict[str, str] = {}

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the home's certificate, which is created at first use."""
        text = self.certificate().read_text()
        pem = text[text.index(ssl.PEM_HEADER) :]
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()

    def url(self, address: str) -> str:
        address = address.removeprefix(NAMED)
        host = f"[{address}]" if ":" in address else address
        return f"https://{host}:{self._port()}"

    async def open(self, address: str) -> None:
        """Listen on the address, unless it does already. Raises ServerError."""
        async with self._opening:
            await self._bind(_ALL if address.startswith(NAMED) else address)
        if self.trouble.pop(address, None):
            self._opened()

    async def _bind(self, bound: str) -> None:
        """Listen on that address of this machine, or on all. One of them cannot be bound while all
        are, nor the other way round."""
        if self._is_open(bound) or (":" not in bound and self._is_open(_ALL)):
            return
        server = self._server()
        covered = [address for address in self._open if bound == _ALL and ":" not in address]
        await self._close(covered)
        try:
            listening = self._listen(bound)
        except ServerError:  # they are opened again with the next attempts
            self.trouble.update(dict.fromkeys(covered, "not open yet"))
            raise
        self._open[bound] = (server, asyncio.create_task(server.serve(sockets=[listening])))

    def _is_open(self, bound: str) -> bool:
        return bound in self._open and not self._open[bound][1].done()

    async def _close(self, addresses: Iterable[str]) -> None:
        closing = [self._open.pop(address) for address in [*addresses]]
        for server, _ in closing:
            server.should_exit = True
        await asyncio.gather(*(task for _, task in closing), return_exceptions=True)

    async def keep_open(self, addresses: set[str]) -> None:
        """Listen on all addresses, retrying every few seconds: an interface may come up after this
        server."""
        pending = set(addresses)
        while True:
            for address in sorted(pending | self.trouble.keys()):
                try:
                    await self.open(address)
                except AllranksError as error:
                    self.trouble[address] = error.message
                    log.error("%s", error)
            pending = set()
            await asyncio.sleep(_RETRY)

    async def close(self) -> None:
        await self._close(self._open)

    def _server(self) -> SecondServer:
        try:
            return SecondServer(config(self._app, certificate=str(self.certificate()), most=MOST))
        except (OSError, ValueError) as error:
            raise ServerError(
                f"cannot use the home's certificate: {error}",
                where=str(self._home.certificate),
                hint="remove the file and restart the server, which creates a new one (running "
                "agents reject the new one)",
            ) from error

    def _listen(self, address: str) -> socket.socket:
        port = self._port()
        raise_file_limit(MOST)
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            return Listener(family, (address, port))
        except OSError as error:
            raise ServerError(
                f"cannot listen for agents: {(error.strerror or str(error)).lower()}",
                where=f"{address}:{port}",
                hint="check that it is an address of this machine (`ip address`) and that the port "
                "is free; to change it: allranks compute update NAME --server-address ADDRESS",
            ) from error

    def _port(self) -> int:
        """The home's port for agents, chosen once: running agents know no other."""
        with self._making:
            if not self._home.agents_port.exists():
                # lazy: only for a home's very first server
                from allranks.agent.network.ports import free_port

                folder_trees.write_file(self._home.agents_port, json.dumps({"port": free_port()}))
        port = read_json(self._home.agents_port, dict).get("port")
        if not isinstance(port, int):
            where = str(self._home.agents_port)
            hint = "delete it if no job runs on other machines: a new port is chosen"
            raise ServerError(
                "the file with the port for agents is damaged", where=where, hint=hint
            )
        return port

    def certificate(self) -> Path:
        """The file with the home's key and certificate, created if missing."""
        with self._making:
            if not self._home.certificate.exists():
                folder_trees.write_file(self._home.certificate, _new_certificate())
        return self._home.certificate


def _new_certificate() -> bytes:
    """A new key with its certificate, as PEM."""
    # Imported here: only homes with remote computes need one, once.
    from cryptography import x509  # lazy: see above
    from cryptography.hazmat.primitives import hashes, serialization  # lazy: see above
    from cryptography.hazmat.primitives.asymmetric import ec  # lazy: see above

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "allranks agents' listener")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Agents compare the hash and ignore dates: their node's clock may be wrong.
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
