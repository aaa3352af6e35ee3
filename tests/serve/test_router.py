"""The router before real replicas: processes, sockets and HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allranks.serve.access_log import AccessLog
from allranks.serve.table import Backend, Route, Site, pack
from allranks.server.endpoints.router_process import RouterProcess
from tests.support import until

pytestmark = pytest.mark.medium
INSIDE = Path(__file__).parents[2] / "src" / "allranks" / "agent" / "inside"
SCRIPT = """
import json, os, time
def run(data):
    found = json.loads(data) if data else {}
    if "wait" in found:
        open(found["began"], "w").close()
        while not os.path.exists(found["wait"]): time.sleep(0.01)
    if "size" in found: return len(data)
    if "fail" in found: raise ValueError("no such bird")
    with open(os.environ["SEEN"], "a") as seen: seen.write("x")
    return os.environ["NAME"]
"""
# Answers in pieces, as servers of language models do: the next one when a file is there.
STREAM = """
import http.server, os, sys, time
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.send_response(200); self.send_header("content-length", "2"); self.end_headers()
        self.wfile.write(b"ok")
    def do_POST(self):
        self.send_response(200); self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked"); self.end_headers()
        self.wfile.write(b"5\\r\\none\\n\\n\\r\\n")
        while not os.path.exists(sys.argv[1]): time.sleep(0.01)
        self.wfile.write(b"5\\r\\ntwo\\n\\n\\r\\n0\\r\\n\\r\\n")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_port, flush=True)
server.serve_forever()
"""


class Stage:
    """A router with replicas that tests add to its table."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.router = folder, RouterProcess(folder / "r o'uter")
        self.router.exchange({}, 0)
        self.address = self.router.address or ""
        (folder / "score.py").write_text(SCRIPT)
        self.processes: dict[str, subprocess.Popen[str]] = {}

    def replica(self, name: str) -> Backend:
        env = {
            **os.environ,
            "PYTHONPATH": str(INSIDE),
            "ALLRANKS_SERVE_SOCKET": str(self.router.sockets / name),
            "NAME": name,
            "SEEN": str(self.seen(name)),
        }
        words = [sys.executable, "-m", "allranks_scoring", "--script", "score.py"]
        self.processes[name] = subprocess.Popen(
            words, cwd=self.folder, env=env, stdout=subprocess.DEVNULL, text=True
        )
        return Backend(name, f"unix:{name}")

    def seen(self, name: str) -> Path:
        return self.folder / f"seen {name}"

    def serve(self, *routes: Route, ready: int | None = None, **site: Any) -> None:
        """Change the table, and wait until the replicas are ready."""
        made = {"keys": None, "traffic": {routes[0].name: 100}, "mirror": {}, **site}
        sites = [Site("e", routes=routes, **made)]
        wanted = sum(len(each.backends) for each in routes) if ready is None else ready
        self.router.exchange({"sites": pack(sites)}, 0)
        until(lambda: self.ready() == wanted)

    def ready(self) -> int:
        state, _ = self.router.exchange({}, 0)
        return sum(each["ready"] for one in state.values() for each in one["replicas"].values())

    def ask(
        self, body: Any = None, path: str = "/endpoints/e/score", **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        connection = http.client.HTTPConnection(self.address.removeprefix("http://"), timeout=60)
        data = body if isinstance(body, bytes) else json.dumps(body or {}).encode()
        connection.request("POST", path, data, {k.replace("_", "-"): v for k, v in headers.items()})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(text) if text else None, found

    def end(self) -> None:
        self.router.end()
        for process in self.processes.values():
            process.kill()
            process.communicate()


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.end()


def test_traffic_keys_and_a_copy(stage: Stage):
    key = "secret"
    digest = hashlib.sha256(key.encode()).hexdigest()
    blue, green = (
        Route("blue", (stage.replica("b")._replace(model="m:1"),)),
        Route("green", (stage.replica("g"),)),
    )
    stage.serve(
        blue, green, keys=(digest,), traffic={"blue": 90, "green": 10}, mirror={"green": 50}
    )
    for wrong in ({}, {"Authorization": "Bearer no"}, {"Authorization": "Basic secret"}):
        status, answer, _ = stage.ask(**wrong)
        assert (status, answer["error"]["message"]) == (401, "the key is missing or wrong")
    known = {"Authorization": f"Bearer {key}"}
    chosen = Counter(stage.ask(**known)[1] for _ in range(100))
    assert chosen == {"b": 90, "g": 10}
    until(lambda: len(stage.seen("g").read_text()) == 60)  # its own ten, and fifty copies
    status, answer, headers = stage.ask(azureml_model_deployment="blue", x_request_id="me", **known)
    assert (status, answer, headers["x-request-id"]) == (200, "b", "me")
    assert (headers["azureml-model-deployment"], headers["allranks-model"]) == ("blue", "m:1")
    status, answer, _ = stage.ask(azureml_model_deployment="red", **known)
    assert (status, answer["error"]["hint"]) == (404, "allranks deployment list -e e")
    assert stage.ask(path="/endpoints/other/score", **known)[0] == 404


def test_errors_of_scripts_and_of_callers(stage: Stage):
    stage.serve(Route("blue", (stage.replica("b"),), timeout=0.3))
    status, answer, headers = stage.ask({"fail": 1})
    assert (status, answer["error"]["message"]) == (424, "ValueError: no such bird")
    assert headers["ms-azureml-model-error-statuscode"] == "500"
    waits = {"wait": str(stage.folder / "go"), "began": str(stage.folder / "began")}
    status, answer, _ = stage.ask(waits)
    assert (status, answer["error"]["message"]) == (408, "no answer within 0.3 s")
    (stage.folder / "go").touch()
    big = b'{"size": "' + b"x" * (3 << 20) + b'"}'
    until(lambda: stage.ask(big)[:2] == (200, len(big)))


def test_busy_replicas_and_one_that_is_killed(stage: Stage):
    route = Route("blue", (stage.replica("b"),), timeout=60.0, queue_wait=0.05)
    stage.serve(route)
    waits = {"wait": str(stage.folder / "go"), "began": str(stage.folder / "began")}
    answers: list[Any] = []
    running = threading.Thread(target=lambda: answers.append(stage.ask(waits, x_request_id="r1")))
    running.start()
    until((stage.folder / "began").exists)
    status, _, headers = stage.ask()
    assert status == 429
    assert int(headers["retry-after"]) >= 1
    stage.processes["b"].kill()
    running.join(30)
    ((status, answer, headers),) = answers
    assert (status, headers["x-request-id"]) == (502, "r1")
    assert "the replica b ended before its answer" in answer["error"]["message"]
    assert "allranks job explain b says" in answer["error"]["hint"]
    status, answer, _ = stage.ask()
    assert (status, answer["error"]["hint"]) == (503, "allranks deployment logs blue -e e")
    stage.serve(route._replace(backends=(*route.backends, stage.replica("c"))), ready=1)
    assert stage.ask()[:2] == (200, "c")
    counts = stage.router.exchange({}, 0)[0]["e/blue"]
    assert counts["replicas"]["b"]["ready"] is False
    assert counts["errors"] >= 1


def test_nothing_fails_while_replicas_change(stage: Stage):
    """New ones come, old ones drain and end, under requests from four callers."""
    first = stage.replica("r0")
    route = Route("blue", (first,), queue_wait=30.0)
    stage.serve(route)
    statuses: Counter[int] = Counter()
    over = threading.Event()

    def call() -> None:
        while not over.is_set():
            statuses[stage.ask()[0]] += 1

    callers = [threading.Thread(target=call) for _ in range(4)]
    for each in callers:
        each.start()
    old = first
    for number in range(1, 4):
        new = stage.replica(f"r{number}")
        stage.serve(route._replace(backends=(old, new)))
        stage.serve(route._replace(backends=(old._replace(drains=True), new)))
        job = old.job
        until(
            lambda job=job: (
                stage.router.exchange({}, 0)[0]["e/blue"]["replicas"][job]["running"] == 0
            )
        )
        stage.serve(route._replace(backends=(new,)))
        stage.processes[old.job].terminate()
        old = new
    over.set()
    for each in callers:
        each.join(60)
    assert statuses.keys() == {200}


def test_an_answer_in_pieces(stage: Stage):
    go = stage.folder / "go"
    words = [sys.executable, "-c", STREAM, str(go)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    stage.processes["s"] = process
    assert process.stdout is not None
    port = process.stdout.readline().strip()
    stage.serve(Route("blue", (Backend("s", f"tcp:{port}"),), timeout=1.0))
    connection = http.client.HTTPConnection(stage.address.removeprefix("http://"), timeout=60)
    connection.request("POST", "/endpoints/e/v1/chat", b"{}")
    answer = connection.getresponse()
    names = [name.lower() for name, _ in answer.getheaders()]
    assert len(names) == len(set(names))  # the router's date and that of the replica
    assert answer.read(5) == b"one\n\n"
    go.touch()
    assert answer.read() == b"two\n\n"
    connection.close()
    # Without keys, names of other machines are refused. Each request is a line of the log.
    assert stage.ask(host="example.org")[0] == 421
    path = stage.folder / "r o'uter" / "access.log"
    until(lambda: path.read_text().count("\n") == 2)
    first, last = map(json.loads, path.read_text().splitlines())
    assert (first["status"], first["bytes"], first["deployment"]) == (200, 10, "blue")
    assert (last["status"], last["deployment"], last["path"]) == (421, None, "/endpoints/e/score")
    log = AccessLog(stage.folder / "small.log", largest=10)

    async def write() -> None:
        for number in range(3):
            log.write(f'{{"number": {number}}}\n')
            await asyncio.sleep(0)
        log.close()

    asyncio.run(write())
    assert (stage.folder / "small.log.1").read_text() == '{"number": 2}\n'


def test_a_head_without_end(stage: Stage):
    host, _, port = stage.address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), 30) as stranger:
        stranger.sendall(b"GET /endpoints/e/score HTTP/1.1\r\nx: ")
        with pytest.raises(OSError, match=r"reset|pipe"):
            stranger.sendall(b"x" * (32 << 20))
    assert stage.ask()[0] == 404


def test_a_router_of_another_version_is_replaced(stage: Stage):
    file = stage.folder / "r o'uter" / "address"
    before = json.loads(file.read_text())
    assert stage.router.exchange({}, before["port"])[1] == before["port"]
    assert json.loads(file.read_text()) == before
    file.write_text(json.dumps({**before, "format": "of before"}))
    assert stage.router.exchange({}, before["port"])[1] == before["port"]
    assert json.loads(file.read_text())["pid"] != before["pid"]


def test_a_replica_whose_socket_is_gone_is_known_before_its_next_probe(stage: Stage):
    stage.serve(Route("blue", (stage.replica("b"),), period=3600.0))
    (stage.router.sockets / "b").rename(stage.folder / "kept")
    until(lambda: stage.ready() == 0)
    (stage.folder / "kept").rename(stage.router.sockets / "b")  # its line is there again
    until(lambda: stage.ready() == 1)
