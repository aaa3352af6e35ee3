"""Connect the node's end of a channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from allranks.channel import PROTOCOL, Connection
from allranks.http_client import Client

if TYPE_CHECKING:
    from allranks.agent.channel.channel_opener import Request

_CONNECT = 20.0


def connect(request: Request, index: int) -> Connection:
    """The node's end of a connection of the channel. Raises AllranksError."""
    refused = "?refused=1" if request["refusal"] else ""
    client = Client(
        request["url"], request["token"], timeout=_CONNECT, fingerprint=request["fingerprint"]
    )
    return Connection(client.upgrade(f"{request['path']}/{index}{refused}", PROTOCOL))
