"""The routes of endpoints, over HTTP against the real application."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from allranks.http_client import Client
from allranks.server.endpoints import controller
from allranks.server.endpoints.router_process import RouterProcess
from allranks.store.database import open_database
from allranks.store.endpoints import Endpoints
from allranks.store.key_values import Settings
from tests.server.serving import JOB, Served, served
from tests.support import free_port, until

pytestmark = pytest.mark.slow


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "h") as made:
        try:
            assert made.people.post("/api/v1/endpoints", json={"name": "e"}).status_code == 201
            until(lambda: made.people.get("/api/v1/endpoints/e").json()["scoring_uri"], 60)
            yield made
        finally:
            assert made.people.delete("/api/v1/endpoints/e").status_code == 200
            until(lambda: RouterProcess(made.home.serve).address is None, 60)


def deployment(**submission: Any) -> dict[str, Any]:
    return {
        "deployment": {"name": "d", "command": "x"},
        "submission": {**JOB, "spec": {"command": "x", "environment": "current"}, **submission},
    }


def test_changes_at_once_lose_none(server: Served):
    address = "/api/v1/endpoints/e"
    made = server.people.post(f"{address}/deployments", json=deployment())
    assert made.status_code == 201, made.text

    def change(number: int) -> None:
        for answer in (
            server.people.patch(f"{address}/deployments/d", json=deployment()),
            server.people.post(f"{address}/keys", json={"key": "primary"}),
            server.people.patch(address, json={"description": str(number)}),
        ):
            assert answer.status_code == 200, answer.text

    with ThreadPoolExecutor(4) as several:
        [*several.map(change, range(12))]
    shown = server.people.get(f"{address}/deployments/d").json()
    assert shown["revision"] == 13
    events = server.people.get(f"{address}/events").json()
    assert [event["kind"] for event in events].count("updated") == 12
    assert events[0]["message"] == "created"
    assert any(event["by"] for event in events)
    keys = server.people.get(f"{address}/keys").json()
    database = open_database(server.home.database)
    row = Endpoints(database, Settings(database), None).get("e")  # type: ignore[arg-type]
    database.dispose()
    assert [*row.keys] == [hashlib.sha256(each.encode()).hexdigest() for each in keys.values()]


def test_more_replicas_than_the_machine_holds_are_refused(server: Served):
    address = "/api/v1/endpoints/e/deployments"
    assert server.people.post(address, json=deployment()).status_code == 201
    made = server.people.patch(f"{address}/d", json={"instance_count": 65})
    assert made.status_code in (400, 422), made.text
    assert "65 replicas do not fit this machine" in made.text
    assert server.people.get(f"{address}/d").json()["instances"] == 1


def test_a_change_that_the_router_does_not_know_is_told(
    server: Served, monkeypatch: pytest.MonkeyPatch
):
    router = json.loads((server.home.serve / "address").read_text())["pid"]
    with monkeypatch.context() as impatient:
        impatient.setattr(controller, "_TELL", 0.1)
        os.kill(router, signal.SIGSTOP)
        try:
            told = server.people.post("/api/v1/endpoints/e/keys", json={"key": "primary"})
        finally:
            os.kill(router, signal.SIGCONT)
    assert told.status_code == 503
    assert "the router does not know it yet" in told.json()["message"]
    until(lambda: server.people.post("/api/v1/endpoints/e/keys", json={}).status_code == 200)


def free_pair() -> int:
    """A port that is free, as the next one is."""
    while True:
        port = free_port()
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port + 1))
            return port


def test_other_machines_reach_the_router_with_tls(server: Served):
    """At the port after the server's, with its certificate, as long as the server is there."""
    address = {"host": "127.0.0.1", "port": free_pair()}
    made = server.people.put("/api/v1/server/front", json=address).json()

    def uri() -> Any:
        return server.people.get("/api/v1/endpoints/e").json()["public_uri"]

    until(uri)
    base = f"https://127.0.0.1:{address['port'] + 1}"
    assert uri() == f"{base}/endpoints/e/score"
    client = Client(made["url"], fingerprint=made["fingerprint"])
    with client.beside(base, 10.0) as connection:
        connection.sendall(b"POST /endpoints/e/score HTTP/1.1\r\nhost: e\r\n\r\n")
        assert connection.recv(1000).startswith(b"HTTP/1.1 401 ")
    with pytest.raises(OSError, match="fingerprint"):
        Client(made["url"], fingerprint="0" * 64).beside(base, 10.0)
    # Without keys the router refuses other machines' names.
    server.people.patch("/api/v1/endpoints/e", json={"auth_mode": "none"})
    assert uri() is None
    server.people.patch("/api/v1/endpoints/e", json={"auth_mode": "key"})
    assert uri() is not None
    server.people.put("/api/v1/server/front", json={"host": None})
    until(lambda: uri() is None)
