"""What the routes have at hand; made once by the app."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple, cast

from fastapi import Request

from allranks.engines.base import Engine
from allranks.server.auth import Auth
from allranks.server.bell import Bell
from allranks.settings import Clocks, Home
from allranks.store.blobs import Blobs
from allranks.store.records import Records

if TYPE_CHECKING:
    from allranks.server.loop import Loop


class Services(NamedTuple):
    home: Home
    clocks: Clocks
    records: Records
    blobs: Blobs
    engines: Mapping[str, Engine]
    auth: Auth
    bell: Bell
    loop: Loop

    def __hash__(self) -> int:
        return id(self)


def services(request: Request) -> Services:
    return cast(Services, request.app.state.services)
