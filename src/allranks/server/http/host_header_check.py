"""What this server is called, against browsers that were sent to it by somebody else's page."""

from __future__ import annotations

import ipaddress
import socket
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from allranks.errors import Forbidden


class HostNames:
    """Addresses, `localhost`, this machine's own name, and the ``more`` that it is served by."""

    def __init__(self) -> None:
        self.more = {"localhost", socket.gethostname().lower()}

    def hold_to(self, headers: Headers) -> None:
        """Raises Forbidden for a name that a stranger gave this machine, and for requests of a page
        that is not this server's: browsers tell both, whatever their user meant."""
        host, origin = headers.get("host", ""), headers.get("origin")
        try:
            name = urlsplit(f"//{host}").hostname
            page = host if origin is None else urlsplit(origin).netloc
        except ValueError:
            name = page = None
        if name is None or not self._is_ours(name):
            hint = "by its address, by `localhost`, or by a name it was started with: --host NAME"
            raise Forbidden(f"this server is not called {host[:255]!r}", hint=hint)
        if page != host:
            hint = "use the command line, or a page of this server's own"
            raise Forbidden(f"pages of {str(origin)[:255]} may not speak to this server", hint=hint)

    def _is_ours(self, name: str) -> bool:
        # An address is nobody's to give away: only a name can be made to mean this machine.
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name in self.more
        return True
