"""Endpoints whose replicas run on hosts of Slurm: reached through channels, replaced when lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
import urllib.error
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import slurm
from tests.support import Allranks, answer, kill_server, until

__all__ = ["slurm"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(600)]

SERVER = """\
import hashlib, http.server, os, pathlib, socket, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/":
            return self.whole(socket.gethostname().encode())
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.chunk(socket.gethostname().encode())
        while not pathlib.Path(os.environ["FOLDER"], self.path[1:]).exists(): time.sleep(0.01)
        self.chunk(b"")
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/hold":
            pathlib.Path(os.environ["FOLDER"], "held").write_text(socket.gethostname())
            time.sleep(600)
        self.whole(hashlib.sha256(body).hexdigest().encode() + body[::-1])
    def whole(self, body):
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def chunk(self, data):
        self.wfile.write(b"%x\\r\\n%s\\r\\n" % (len(data), data))
http.server.ThreadingHTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
"""


def test_replicas_on_hosts_of_slurm(
    slurm: Allranks, cluster: Cluster, code: Path, home: Path, tmp_path: Path
) -> None:
    (code / "serve.py").write_text(SERVER)
    deployment = {
        "name": "blue",
        "endpoint_name": "far",
        "command": "exec python serve.py",
        "code": ".",
        "compute": "s",
        "instance_count": 2,
        "environment_variables": {"FOLDER": str(tmp_path)},
        "request_settings": {"request_timeout_ms": 120_000},
    }
    (code / "blue.yml").write_text(json.dumps(deployment))
    assert slurm("endpoint", "create", "far").returncode == 0
    made = slurm("deployment", "create", "-f", "blue.yml", "--all-traffic", timeout=120)
    assert made.returncode == 0, made.stderr
    # Each would have room on any host, but its loss is not to end both.
    hosts = [node["host"] for item in replicas(slurm) for node in nodes_of(slurm, item["job"])]
    assert len({*hosts}) == 2, hosts
    uri = answer(slurm, "endpoint", "show", "far")["scoring_uri"].removesuffix("score")
    key = answer(slurm, "endpoint", "get-credentials", "far")["primaryKey"]

    def ask(path: str, body: bytes | None = None, **headers: str) -> HTTPResponse:
        headers["Authorization"] = f"Bearer {key}"
        found: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(uri + path, body, headers), timeout=120
        )
        return found

    # Streams in both directions, while another request is answered on the other host.
    flood = os.urandom(3_000_000)
    with ask("go") as stream:
        first = stream.read1(100)
        with ask("up", flood) as back:
            assert back.read() == hashlib.sha256(flood).hexdigest().encode() + flood[::-1]
        with ask("") as other:
            assert {first, other.read()} <= {b"n1", b"n2", b"n3"}
            assert other.headers["azureml-model-deployment"] == "blue"
        (tmp_path / "go").touch()
        assert stream.read() == b""

    # A killed server finds the same replicas again.
    before = {item["job"] for item in replicas(slurm)}
    kill_server(home)
    assert slurm("server", "start").returncode == 0

    def is_answered() -> bool:
        with contextlib.suppress(urllib.error.HTTPError), ask(""):
            return True
        return False

    until(is_answered, 60)
    assert {item["job"] for item in replicas(slurm)} == before

    # A host is lost: the request that it has is told so, and a replica comes elsewhere.
    caught: list[Any] = []

    def hold() -> None:
        try:
            ask("hold", b"", **{"x-request-id": "mine"})
        except urllib.error.HTTPError as error:
            caught.extend((error.code, error.headers["x-request-id"], error.read()))

    holding = threading.Thread(target=hold)
    holding.start()
    until(lambda: (tmp_path / "held").exists() and (tmp_path / "held").read_text())
    lost = (tmp_path / "held").read_text()
    cluster("kill-host", lost)
    holding.join(120)
    assert caught[:2] == [502, "mine"], caught
    assert b"ended before its answer" in caught[2]
    with ask("") as answered:
        assert answered.read().decode() != lost

    def is_replaced() -> bool:
        ready = {item["job"] for item in replicas(slurm) if item["ready"]}
        return len(ready) == 2 and len(ready & before) == 1

    until(is_replaced, 120)
    assert slurm("endpoint", "delete", "far", "--yes").returncode == 0
    until(lambda: not cluster.slurm("squeue", "-h", "-t", "R"), 60)


def nodes_of(slurm: Allranks, job: str) -> list[dict[str, Any]]:
    nodes: list[dict[str, Any]] = answer(slurm, "job", "show", job)["node_states"]
    return nodes


def replicas(slurm: Allranks) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answer(slurm, "deployment", "show", "blue", "-e", "far")[
        "replicas"
    ]
    return found
