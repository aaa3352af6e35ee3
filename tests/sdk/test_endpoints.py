"""Requests to the endpoints of a server elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.api.routes import Route
from allranks.errors import ServerError
from allranks.sdk.assets.endpoints import invoke
from allranks.sdk.connection import find_server


def test_no_key_is_sent_to_a_port_of_this_machine(monkeypatch: pytest.MonkeyPatch):
    asked = []

    def ask(route: Route[Any], *names: str) -> dict[str, Any]:
        asked.append(route.url(*names))
        uri = "http://127.0.0.1:9/endpoints/e/score"
        keys = {"auth_mode": "key", "primary": "secret"}
        return {"scoring_uri": uri, "public_uri": None, "deployments": [], **keys}

    monkeypatch.setattr(find_server, "ask", ask)
    monkeypatch.setenv("ALLRANKS_SERVER", "https://elsewhere:7443")
    with pytest.raises(ServerError, match="no address for requests"):
        invoke("e", b"{}")
    assert asked == ["/api/v1/endpoints/e"]
    monkeypatch.setenv("ALLRANKS_SERVER", "http://localhost:7443")  # a tunnel
    with pytest.raises(ServerError, match="the router does not answer"):
        invoke("e", b"{}")
