"""Check the Host and Origin headers, against DNS rebinding and cross-site requests."""

from __future__ import annotations

import ipaddress
import os
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from allranks.errors import Forbidden

_REMEMBERED = 100


class HostNames:
    """The names of this server: addresses, `localhost`, its host name, those of
    ALLRANKS_HOST_NAMES, and others added to ``more``."""

    def __init__(self) -> None:
        names = os.environ.get("ALLRANKS_HOST_NAMES", "").lower().replace(",", " ").split()
        self.more = {"localhost", socket.gethostname().lower(), *names}
        # Values of Host that were good: names are only added to ``more``.
        self._good: set[str] = set()

    def check(self, headers: Headers) -> None:
        """Raise Forbidden for an unknown host name and for requests from other sites' pages."""
        host = headers.get("host", "")
        origin = headers.get("origin")
        if origin is None and host in self._good:
            return  # most requests: agents and the command line send the same host again
        try:
            name = urlsplit(f"//{host}").hostname
            page = host if origin is None else urlsplit(origin).netloc
        except ValueError:
            name = page = None
        if name is None or not self._is_known(name):
            hint = "use its address, `localhost`, or a name it was started with: --host NAME"
            raise Forbidden(f"{host[:255]!r} is not a name of this server", hint=hint)
        if page != host:
            hint = "use the command line, or a page of this server"
            raise Forbidden(f"pages of {str(origin)[:255]} may not call this server", hint=hint)
        if len(self._good) < _REMEMBERED:
            self._good.add(host)

    def _is_known(self, name: str) -> bool:
        # An attacker can point a name at this machine, but not an address.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.more
        return True
