"""Nodes that share no disk with the server: real agents, and requests that no agent sends."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import json
import os
import pwd
import random
import shutil
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest

from allranks.agent.state import state_folder
from allranks.agent.transport.identity import AgentIdentity
from allranks.agent.transport.link import ServerAddress
from allranks.engines import agent_bundle, agent_fetch
from allranks.engines.base import Kind
from allranks.errors import NotFound
from allranks.folder_trees import write_file
from allranks.server.agent_api import input_routes
from allranks.server.agent_api.input_routes import Reach
from allranks.server.http import file_piece
from allranks.settings import Home
from allranks.statuses import SharedHome
from tests.server.serving import FAKE, Served, Target, held_to, served
from tests.support import until

OWN = FAKE._replace(shared_home=lambda options: SharedHome.NO, mounts=lambda options: ())
PROGRAM = Path(agent_fetch.__file__).read_text()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Served]:
    with served(tmp_path / "ho'me", OWN) as found:
        yield found


# In a mount namespace of its own, where an empty disk hides the server's home.
APART = (
    "unshare",
    "--map-root-user",
    "--mount",
    "sh",
    "-c",
    'mount -t tmpfs none "$0" && exec "$@"',
)


def can_hide() -> bool:
    """Whether this user may have mount namespaces."""
    done = subprocess.run([*APART, "/mnt", "true"], capture_output=True)
    return done.returncode == 0


class Nodes:
    """The agents of the launch of a job, each fetched into a folder of its own, from where nobody
    sees the server's home."""

    def __init__(self, server: Served, root: Path, job: str, launch: int = 1) -> None:
        agent_bundle.keep(server.home.engines)
        self._server, self._root, self.job, self.launch = server, root, job, launch
        self.running: dict[int, subprocess.Popen[bytes]] = {}

    def folder(self, node: int) -> Path:
        return self._root / f"launch {self.launch}" / str(node) / "node"

    def start(self, node: int, *, sees_home: bool = False, **more: str) -> None:
        mine = {
            "URL": self._server.url,
            "TOKEN": self._server.auth.agent_token(self.job, self.launch),
            "LAUNCH": str(self.launch),
            "NODE": str(node),
            "DIR": str(self.folder(node)),
            "ADDRESS": "127.0.0.1",
            "BUNDLE": agent_bundle.digest(),
            "PATIENCE": "20",
            **more,
        }
        kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        self._root.mkdir(exist_ok=True)
        with (self._root / f"said-{node}").open("wb") as said:
            self.running[node] = subprocess.Popen(
                [
                    *(() if sees_home else (*APART, self._server.home.root)),
                    *(sys.executable, "-I", "-c", PROGRAM, "-P", "-m", "allranks.agent"),
                ],
                env={**kept, **{f"ALLRANKS_AGENT_{key}": value for key, value in mine.items()}},
                stderr=said,
            )

    def said(self, node: int) -> str:
        """What the last agent of the node printed."""
        return (self._root / f"said-{node}").read_text()

    def end(self, seconds: float = 60) -> list[int]:
        """Exit codes, once all have ended."""
        return [self.running[node].wait(seconds) for node in sorted(self.running)]

    def kill(self) -> None:
        """As a host that loses its power: no rank outlives its agent."""
        for each in self.running.values():
            with contextlib.suppress(psutil.NoSuchProcess):
                keeper = psutil.Process(each.pid)
                for process in (keeper, *keeper.children(recursive=True)):
                    process.kill()
            each.wait()


@pytest.fixture
def nodes(server: Served, tmp_path: Path) -> Iterator[Nodes]:
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    found = Nodes(server, tmp_path / "nodes", "j")
    yield found
    found.kill()


def job_of(server: Served, name: str = "j") -> dict[str, Any]:
    found: dict[str, Any] = server.people.get(f"/api/v1/jobs/{name}").json()
    return found


def submit(server: Served, command: str, nodes: int = 2, **more: Any) -> None:
    spec = {"command": command, "resources": {"instance_count": nodes}, **more}
    body = {
        "spec": {"name": "j", "environment": "current", **spec},
        "base": {"PATH": "/usr/bin:/bin"},
    }
    told = server.people.post("/api/v1/jobs", json=body)
    assert told.status_code == 201, told.text
    name = body["spec"]["name"]
    until(lambda: job_of(server, name)["status"] == "Provisioning")


# ------------------------------------------------------------ real agents


@pytest.mark.slow
def test_nodes_get_all_from_the_server_and_send_all_to_it(server: Served, nodes: Nodes):
    data = server.home.data / "set"
    (data / "deep").mkdir(parents=True)
    (data / "large").write_bytes(os.urandom(9_000_001))
    (data / "deep" / "empty").touch(0o755)
    (data / "large").chmod(0o755)
    (data / "out").symlink_to(server.home.token)
    command = (
        "n=$ALLRANKS_NODE_RANK; cd ${{inputs.d}}; ls -A . deep; "
        "[ -x deep/empty ] && [ -x large ] && cd - >/dev/null; "
        "cp ${{inputs.d}}/large ${{outputs.o}}/large-$n; ln -s large-$n ${{outputs.o}}/link-$n; "
        "mkdir outputs/empty; echo $n > outputs/of-$n; echo work > new; pwd"
    )
    of_store = {"d": {"path": "azureml://datastores/default/paths/set"}}
    submit(server, command, inputs=of_store, outputs={"o": {}}, distribution={"type": "pytorch"})
    nodes.start(0)
    # Alone it leaves no trace: the gang could be suspended.
    until(lambda: (nodes.folder(0).parent / "code" / "allranks").is_dir())
    assert job_of(server)["status"] == "Provisioning"
    nodes.start(1)
    assert nodes.end() == [0, 0]
    until(lambda: job_of(server)["ended_at"])
    assert job_of(server)["error"] is None
    record = server.home.jobs / "j"
    for node in range(2):
        sent = record / "named-outputs" / "o" / f"large-{node}"
        assert sent.read_bytes() == (data / "large").read_bytes()
        assert os.readlink(sent.with_name(f"link-{node}")) == f"large-{node}"
        assert (record / f"artifacts/outputs/of-{node}").read_text() == f"{node}\n"
        assert (record / f"artifacts/work/node-{node}/new").read_text() == "work\n"
        log = (record / f"attempts/1/user_logs/std_log_process_{node}.txt").read_text()
        assert log.splitlines()[:6] == [".:", "deep", "large", "", "deep:", "empty"]
        assert str(nodes.folder(node)) in log
    assert (record / "artifacts/outputs/empty").is_dir()
    # What was kept for another launch is gone, and nothing lies beside the record's own files.
    until(lambda: not (server.home.nodes / "j.files").exists())
    assert not list(record.rglob(".*"))


@pytest.mark.slow
def test_a_job_whose_files_cannot_be_sent_has_failed(server: Served, nodes: Nodes):
    (server.home.jobs / "j" / "named-outputs" / "o").mkdir(parents=True)
    submit(server, "sleep 1; echo x > ${{outputs.o}}/f", 1, outputs={"o": {}})
    blocked = server.home.nodes / "j.files"
    blocked.write_text("a file where the folder should be")
    nodes.start(0)
    nodes.end()
    until(lambda: job_of(server)["ended_at"])
    error = job_of(server)["error"]
    assert error["reason"] == "OUTPUTS_LOST"
    assert "not all files of the job reached the server" in error["message"]


@pytest.mark.slow
def test_a_failed_and_a_canceled_attempt_leave_their_files(server: Served, nodes: Nodes):
    command = (
        "if [ -e outputs/first ]; then echo 2 > outputs/second; echo 2 > of-2; sleep 600; fi; "
        "echo 1 > outputs/first; echo 1 > of-1; exit 3"
    )
    submit(server, command, 1, retry={"max_attempts": 2})
    record = server.home.jobs / "j"
    nodes.start(0)
    # Sent while it runs.
    until(lambda: (record / "artifacts/outputs/second").exists(), 40)
    assert (record / "artifacts/outputs/first").read_text() == "1\n"
    # The working folder goes on: of the attempt before there are names and sizes.
    until(lambda: (record / "attempts/1/work/node-0.txt").exists())
    assert (record / "attempts/1/work/node-0.txt").read_text().split() == ["2", "of-1"]
    assert server.people.post("/api/v1/jobs/j/cancel").status_code < 300
    assert nodes.end() == [0]
    until(lambda: job_of(server)["ended_at"])
    assert job_of(server)["status"] == "Canceled"
    assert (record / "artifacts/work/of-2").read_text() == "2\n"
    assert (record / "artifacts/work/of-1").read_text() == "1\n"


@pytest.mark.slow
@pytest.mark.parametrize("home", ["/nonexistent", ""])
def test_a_user_without_a_home_gets_a_folder(
    server: Served, nodes: Nodes, home: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", home) if home else monkeypatch.delenv("HOME")
    submit(server, 'mkdir "$HOME/$$" && rmdir "$HOME/$$" && echo "$HOME"', 1)
    nodes.start(0)
    assert nodes.end() == [0]
    until(lambda: job_of(server)["ended_at"])
    log = server.home.jobs / "j" / "attempts/1/user_logs/std_log.txt"
    # Without a variable, the user's entry in /etc/passwd names it.
    expected = f"{nodes.folder(0)}/home" if home else pwd.getpwuid(os.geteuid()).pw_dir
    assert log.read_text() == f"{expected}\n"


@pytest.mark.medium
def test_a_wrong_token_or_bundle_starts_nothing(server: Served, nodes: Nodes):
    submit(server, "true", 1)
    nodes.start(0, TOKEN="1:j:forged")
    assert nodes.end() == [0]
    assert "dismisses" in nodes.said(0)
    nodes.start(0, BUNDLE="0" * 64)
    assert nodes.end() == [0]
    other = b"not what was named"
    (server.home.engines / f"agent-{'1' * 64}.zip").write_bytes(other)
    nodes.start(0, BUNDLE="1" * 64)
    assert nodes.end() == [1]
    assert "is damaged" in nodes.said(0)
    assert job_of(server)["status"] == "Provisioning"


@pytest.mark.medium
def test_a_server_with_another_certificate_is_told_nothing(
    server: Served, nodes: Nodes, tmp_path: Path
):
    from allranks.server.http.agents_listener import _new_certificate

    requests: list[str] = []

    class Stranger(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)

    submit(server, "true", 1)
    write_file(tmp_path / "stranger.pem", _new_certificate())
    stranger = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Stranger)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "stranger.pem")
    stranger.socket = context.wrap_socket(stranger.socket, server_side=True)
    thread = threading.Thread(target=stranger.serve_forever)
    thread.start()
    try:
        url = f"https://127.0.0.1:{stranger.server_address[1]}"
        nodes.start(0, URL=url, FINGERPRINT="0" * 64, PATIENCE="0.1")
        assert nodes.end() == [1]
    finally:
        stranger.shutdown()
        thread.join()
        stranger.server_close()
    assert "certificate does not match" in nodes.said(0)
    assert requests == []


@pytest.mark.slow
def test_a_restarted_server_has_the_files_for_the_next_launch(tmp_path: Path):
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    home = tmp_path / "home"
    command = (
        "if [ -e outputs/first ]; then cp outputs/first outputs/second; exit 0; fi; "
        "echo 1 > outputs/first; sleep 600"
    )
    with served(home, OWN) as server:
        submit(server, command, 1, retry={"max_attempts": 2})
        first = Nodes(server, tmp_path / "nodes", "j")
        first.start(0)
        outputs = server.home.jobs / "j" / "artifacts" / "outputs"
        until(lambda: (outputs / "first").exists())
        first.kill()
        leftover = server.home.nodes / "other.files"
        leftover.mkdir()
    with served(home, OWN, lease=1.0) as server:
        until(lambda: not leftover.exists())
        until(lambda: job_of(server)["launches"] == 2)
        second = Nodes(server, tmp_path / "nodes", "j", 2)
        second.start(0)
        assert second.end() == [0]
        until(lambda: job_of(server)["ended_at"])
        assert job_of(server)["status"] == "Completed"
        assert (outputs / "second").read_text() == "1\n"


class Away(NamedTuple):
    """One node of a job whose server is away; its ranks end, with what ``then`` does, once ``over``
    is there. A server of the same port and ``kind`` hears it again."""

    home: Home
    kind: Kind
    port: int
    nodes: Nodes
    over: Path


@contextmanager
def away(tmp_path: Path, then: str, patience: float = 60.0, **more: Any) -> Iterator[Away]:
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    engine, over = Target(Home(tmp_path), None), tmp_path / "over"
    kind = OWN._replace(make=lambda home, options: engine)
    with served(tmp_path / "home", kind, patience=patience) as server:
        submit(server, f"while [ ! -e '{over}' ]; do sleep 0.05; done; {then}", 1, **more)
        nodes = Nodes(server, tmp_path / "nodes", "j")
        nodes.start(0)
        until(lambda: job_of(server)["status"] == "Running")
        port = int(server.url.rpartition(":")[2])
    try:
        yield Away(server.home, kind, port, nodes, over)
    finally:
        nodes.kill()


@pytest.mark.slow
def test_what_a_node_has_made_waits_for_a_server_that_is_away(tmp_path: Path):
    """Without a server, an agent with nothing to send leaves after ``patience``."""
    with away(tmp_path, "echo made | tee outputs/late", patience=2.0) as found:
        found.over.touch()
        with pytest.raises(subprocess.TimeoutExpired):
            found.nodes.end(6)
        with served(found.home.root, found.kind, found.port, patience=2.0) as server:
            assert found.nodes.end() == [0]
            until(lambda: job_of(server)["ended_at"])
            assert job_of(server)["status"] == "Completed"
            record = server.home.jobs / "j"
            assert (record / "artifacts/outputs/late").read_text() == "made\n"
            log = record / "attempts/1/user_logs/std_log.txt"
            assert log.read_text() == "made\n"


@pytest.mark.slow
def test_a_job_that_continues_another_finds_its_files(server: Served, tmp_path: Path):
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    command = (
        "n=$ALLRANKS_NODE_RANK; if [ -e outputs/run-0 ]; "
        "then outputs/run-$n && cat ${{outputs.o}}/* outputs/link > outputs/found-$n; exit; fi; "
        "printf '#!/bin/sh\\ntrue\\n' > outputs/run-$n; chmod 755 outputs/run-$n; "
        "echo same > ${{outputs.o}}/$n; if [ $n = 0 ]; then ln -s run-0 outputs/link; fi"
    )
    submit(server, command, outputs={"o": {}}, distribution={"type": "pytorch"})
    for job in ("j", "j-r2"):
        nodes = Nodes(server, tmp_path / job, job)
        try:
            for node in range(2):
                nodes.start(node)
            assert nodes.end() == [0, 0]
        finally:
            nodes.kill()
        until(lambda name=job: job_of(server, name)["ended_at"])
        assert job_of(server, job)["status"] == "Completed"
        if job == "j":
            assert server.people.post("/api/v1/jobs/j/restart?resume=true").status_code == 201
            assert (server.home.nodes / "j-r2.files" / "1" / "head").exists()
    outputs = server.home.jobs / "j-r2" / "artifacts" / "outputs"
    for node in range(2):
        assert (outputs / f"found-{node}").read_text() == "same\nsame\n#!/bin/sh\ntrue\n"
    until(lambda: not (server.home.nodes / "j-r2.files").exists())


@pytest.mark.slow
@pytest.mark.parametrize("change", [True, False])
def test_what_a_restored_server_lacks_is_sent_at_the_end(
    tmp_path: Path, change: bool, request: pytest.FixtureRequest
):
    """A backup has neither the files of a job nor what is kept for the next launch."""
    engine = Target(Home(tmp_path), None)
    kind = OWN._replace(make=lambda home, options: engine)
    with served(tmp_path / "home", kind) as server:
        submit(server, "true", 1)
        token, port = server.auth.agent_token("j", 1), int(server.url.rpartition(":")[2])
        where = AgentIdentity(server.url, token, "", 1, 0, tmp_path / "node", "127.0.0.1", 1)
        door = ServerAddress(server.url, token)
        state = state_folder.State(
            state_folder.job_files(where), where, door, True, 0.01, False, lambda _: None
        )
        request.addfinalizer(state.close)
        state.begin(1, lambda _: None, lambda _: None)
        mine = tmp_path / "node/record/node-0/artifacts/outputs"
        for name in ("first", "last"):
            (mine / name).write_text("early")
        assert state.finish(True, 10, dict, lambda _: None) == ""
        outputs = server.home.jobs / "j/artifacts/outputs"
        assert (outputs / "last").read_text() == "early"
    shutil.rmtree(server.home.nodes / "j.files")
    shutil.rmtree(outputs)
    if change:
        (mine / "last").write_text("late")
    with served(tmp_path / "home", kind, port):
        assert state.finish(True, 10, dict, lambda _: None) == ""
        assert (outputs / "first").read_text() == "early"
        assert (outputs / "last").read_text() == ("late" if change else "early")


# ------------------------------------------------------------ requests that no agent sends


class Client:
    """A node of the job, as it talks to the server."""

    def __init__(self, server: Served, node: int = 0, job: str = "j", launch: int = 1) -> None:
        self._head = server.as_(server.auth.agent_token(job, launch))
        self._server, self.node = server, node

    def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        url = f"/agent/v1/{self.node}/{path}"
        told = self._server.people.request(method, url, headers=self._head, **more)
        held_to(told)
        return told

    def put(self, path: str, data: bytes = b"x", **entry: Any) -> httpx.Response:
        """Send a file's content and name, or another ``entry``."""
        sha256 = hashlib.sha256(data).hexdigest()
        self.content(data)
        made = ["file", sha256, len(data), 1, 0o644, "", 0]
        return self.sync([{"path": path, "base": 0, "entry": entry.get("entry", made)}])

    def content(self, data: bytes, offset: int = 0, end: int | None = None) -> httpx.Response:
        sha256 = hashlib.sha256(data).hexdigest()
        query = f"offset={offset}&size={len(data)}"
        return self.send("PUT", f"record/contents/{sha256}?{query}", content=data[offset:end])

    def sync(self, puts: list[Any], **more: Any) -> httpx.Response:
        body = {"attempt": 1, "after": 0, "puts": puts, "same": False, "over": False, **more}
        return self.send("POST", "record/sync", content=json.dumps(body))


def tree(home: Home) -> set[str]:
    """All that jobs have in the home."""
    return {str(path.relative_to(home.jobs)) for path in home.jobs.rglob("*")}


HOSTILE = [
    "node-0/../../other/x",
    "node-0/artifacts/outputs/../../../x",
    "node-0/artifacts/outputs/./x",
    "node-0/artifacts/outputs//x",
    "/etc/x",
    "node-0//etc/x",
    "node-1/artifacts/outputs/x",
    "shared/artifacts/outputs/x",
    "artifacts/outputs/x",
    "node-0/artifacts/user_logs/std_log.txt",
    "node-0/artifacts/system_logs/uncommitted.diff",
    "node-0/x",
    "node-0/artifacts/outputs",
    "node-0/artifacts/outputs/a\0b",
    "node-0/artifacts/outputs/" + "x" * 5000,
    "",
    7,
    None,
]


def test_a_node_writes_nowhere_but_where_its_ranks_do(server: Served):
    submit(server, "true")
    before, node = tree(server.home), Client(server)
    for path in HOSTILE:
        assert node.put(path).status_code == 400, path  # type: ignore[arg-type]
    for target in ("/etc/passwd", "../../../../token", "x/../../../../../y", ""):
        entry = ["link", "", 0, 1, 0, target, 0]
        assert node.put("node-0/artifacts/outputs/l", entry=entry).status_code == 400, target
    for entry in (["pipe", "", 0, 1, 0, "", 0], ["file", "../../x", 1, 1, 0, "", 0], [], 3):
        assert node.put("node-0/artifacts/outputs/l", entry=entry).status_code >= 400
    assert tree(server.home) == before


def test_nobody_but_the_jobs_own_living_nodes_writes(server: Served):
    submit(server, "true")
    before = tree(server.home)
    path = "node-0/artifacts/outputs/x"
    assert Client(server, launch=2).put(path).status_code == 401
    assert Client(server, node=2).put("node-2/artifacts/outputs/x").status_code == 401
    assert Client(server, job="other").put(path).status_code in (401, 404)
    head = server.as_(server.auth.rank_token("j", 1))
    body = {"attempt": 1, "after": 0, "puts": [], "same": False, "over": False}
    told = server.people.post("/agent/v1/0/record/sync", headers=head, json=body)
    assert told.status_code == 401
    assert Client(server).sync([], attempt=2).status_code == 409
    assert tree(server.home) == before


def test_a_link_of_one_node_leads_no_file_of_another_astray(server: Served, tmp_path: Path):
    submit(server, "true")
    link = ["link", "", 0, 1, 0, "../../artifacts", 0]
    assert Client(server).put("node-0/artifacts/outputs/l", entry=link).json()["done"]
    told = Client(server, 1).put("node-1/artifacts/outputs/l/system_logs")
    # Not done: the agent reports it.
    assert told.json()["done"] == {}
    outputs = server.home.jobs / "j" / "artifacts" / "outputs"
    assert [path.name for path in outputs.iterdir()] == ["l"]
    # Nor does a file replace what another node has as a folder.
    folder = ["folder", "", 0, 0, 0, "", 0]
    assert Client(server).put("node-0/artifacts/outputs/f", entry=folder).json()["done"]
    assert Client(server, 1).put("node-1/artifacts/outputs/f").json()["done"] == {}
    assert (outputs / "f").is_dir()


def test_a_file_appears_whole_or_not_at_all(server: Served):
    submit(server, "true")
    node, data = Client(server), os.urandom(1000)
    path = "node-0/artifacts/outputs/large"
    file = server.home.jobs / "j" / "artifacts" / "outputs" / "large"
    assert node.content(data, 0, 400).json() == {"have": 400}
    entry = ["file", hashlib.sha256(data).hexdigest(), 1000, 1, 0o640, "", 0]
    assert node.sync([{"path": path, "base": 0, "entry": entry}]).status_code >= 400
    assert not file.exists()
    # A connection that was cut: the sender asks, and continues.
    sha256 = hashlib.sha256(data).hexdigest()
    assert node.send("POST", "record/missing", json=[sha256]).json() == {sha256: 400}
    assert node.content(data, 500).json() == {"have": 400}
    assert node.content(data, 400).json() == {"have": 1000}
    assert node.sync([{"path": path, "base": 0, "entry": entry}]).json()["done"] == {path: 1}
    assert file.read_bytes() == data
    # The wrong bytes are refused, and a removed file goes.
    wrong = {"offset": 0, "size": 5}
    assert node.send("PUT", f"record/contents/{'0' * 64}", params=wrong, content=b"wrong").is_error
    assert node.sync([{"path": path, "base": 1, "entry": None}]).json()["done"] == {path: 0}
    assert not file.exists()


def test_files_with_the_same_content_have_their_own_mode_and_time(server: Served):
    submit(server, "true")
    node, data = Client(server), b"#!/bin/sh\n"
    outputs = server.home.jobs / "j" / "artifacts" / "outputs"
    node.content(data)
    of = {"run.sh": (1_000, 0o755), "copy": (2_000, 0o644), "again": (1_000, 0o755)}
    sha256, bases = hashlib.sha256(data).hexdigest(), dict[str, int]()
    for name, (time, mode) in of.items():
        entry = ["file", sha256, len(data), time, mode, "", 0]
        path = f"node-0/artifacts/outputs/{name}"
        bases |= node.sync([{"path": path, "base": 0, "entry": entry}]).json()["done"]
    for name, (time, mode) in of.items():
        status = (outputs / name).stat()
        assert (status.st_mtime_ns, status.st_mode & 0o777) == (time, mode), name
        assert (outputs / name).read_bytes() == data
    # A copy is removed as its original is.
    for path, base in bases.items():
        gone = {"path": path, "base": base, "entry": None}
        assert node.sync([gone]).json()["done"]
    assert not [*outputs.iterdir()]


def test_what_two_nodes_put_into_a_folder_at_once_leaves_its_time(server: Served):
    submit(server, "true")
    folder = ["folder", "", 0, 7, 0, "", 0]
    step = server.home.jobs / "j" / "artifacts" / "outputs" / "step"

    def send(node: int) -> None:
        client, path = Client(server, node), f"node-{node}/artifacts/outputs/step"
        assert client.put(path, entry=folder).json()["done"]
        made = ["file", hashlib.sha256(b"x").hexdigest(), 1, 1, 0o644, "", 0]
        puts = [{"path": f"{path}/{n}-of-{node}", "base": 0, "entry": made} for n in range(100)]
        client.content(b"x")
        assert len(client.sync(puts).json()["done"]) == 100

    with ThreadPoolExecutor(2) as nodes:
        list(nodes.map(send, range(2)))
    assert (len(os.listdir(step)), step.stat().st_mtime_ns) == (200, 7)


def test_a_record_on_another_disk_and_what_a_killed_server_leaves(
    server: Served, monkeypatch: pytest.MonkeyPatch
):
    submit(server, "true")
    node, outputs = Client(server), server.home.jobs / "j" / "artifacts" / "outputs"
    rename, made = os.rename, list[str]()

    def other_disk(source: Any, goal: Any, **how: Any) -> None:
        if "src_dir_fd" not in how and "dst_dir_fd" in how and not str(source).startswith("/proc"):
            made.append(str(source))
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        rename(source, goal, **how)

    monkeypatch.setattr(os, "rename", other_disk)
    link = ["link", "", 0, 1, 0, "x", 0]
    assert node.put("node-0/artifacts/outputs/l", entry=link).json()["done"]
    assert node.put("node-0/artifacts/outputs/x", b"data").json()["done"]
    assert os.readlink(outputs / "l") == "x"
    assert (outputs / "x").read_bytes() == b"data"
    assert sorted(each.name for each in outputs.iterdir()) == ["l", "x"]
    # Where a killed server leaves it, it goes with the job.
    assert all(each.startswith(f"{server.home.nodes}/j.files/") for each in made)
    assert not list((server.home.nodes / "j.files").rglob("*.part"))


def test_what_another_node_wrote_since_is_not_removed(server: Served):
    submit(server, "true")
    file = server.home.jobs / "j" / "artifacts" / "outputs" / "same"
    assert Client(server).put("node-0/artifacts/outputs/same", b"zero").json()["done"]
    assert Client(server, 1).put("node-1/artifacts/outputs/same", b"one").json()["done"]
    assert file.read_bytes() == b"one"
    gone = {"path": "node-0/artifacts/outputs/same", "base": 1, "entry": None}
    assert Client(server).sync([gone]).json()["done"]
    assert file.read_bytes() == b"one"


def test_inputs_are_served_from_stores_alone_and_never_through_links(
    server: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    data = server.home.data / "set"
    data.mkdir(parents=True)
    (data / "a").write_bytes(b"0123456789")
    (data / "out").symlink_to(server.home.token)
    (data / "in").symlink_to("a")
    (data / "folder").symlink_to(server.home.root)
    inputs = {
        "d": {"path": "azureml://datastores/default/paths/set"},
        "e": {"path": str(tmp_path / "elsewhere")},
        "t": {"path": str(server.home.token)},
    }
    submit(server, "true ${{inputs.d}} ${{inputs.e}} ${{inputs.t}}", inputs=inputs)
    (tmp_path / "elsewhere").write_text("mine")
    node = Client(server)
    listed = node.send("GET", "input/d").json()
    assert sorted(each[0] for each in listed["files"]) == ["a", "in"]
    assert not listed["is_file"]
    assert listed["left_out"] == 2  # the folder counts as one, and is not entered
    of = {each[0]: each[:3] for each in listed["files"]}
    pieces = [[*of["a"], 2, 3], [*of["in"], 0, 1]]
    assert node.send("POST", "input/d", json=pieces).content == b"2340"
    for name in ("out", "folder/token", "../../token", "/etc/passwd", "a/../a", "", 3):
        assert node.send("POST", "input/d", json=[[name, 10, 1, 0, 5]]).is_error, name
    large = random.Random(1).randbytes((3 << 20) + 5)
    (data / "a").write_bytes(large)
    row = node.send("GET", "input/d").json()["files"][0][:3]
    for uses_sendfile in (True, False):  # as over TLS
        monkeypatch.setattr(file_piece, "_can_sendfile", lambda _, it=uses_sendfile: it)
        for start in (0, 7):
            piece = [[*row, start, len(large) - 9]]
            told = node.send("POST", "input/d", json=piece).content
            assert told == large[start : start + len(large) - 9]
        with pytest.raises(httpx.RemoteProtocolError):  # it is shorter than a piece of it
            node.send("POST", "input/d", json=[[*row, 9, len(large)]])
    (data / "a").write_bytes(large[:10])
    assert node.send("POST", "input/d", json=[[*row, 0, 2 << 20]]).status_code == 409
    changed = [[of["a"][0], 10, 1, 0, 5]]
    assert node.send("POST", "input/d", json=changed).status_code == 409
    for bad in ([[*of["a"], 0, 17 << 20]], [[*of["a"], -1, 3]], [[*of["a"]]], [3], {}, "x"):
        assert node.send("POST", "input/d", json=bad).status_code == 400, bad
    for name in ("e", "t", "nothing", "..", "%2e%2e"):
        assert node.send("GET", f"input/{name}").status_code == 404, name
    assert Client(server, launch=2).send("GET", "input/d").status_code == 401


def test_a_link_that_takes_the_place_of_a_file_at_the_last_moment_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    source, secret = tmp_path / "set", tmp_path / "secret"
    source.mkdir()
    file = source / "a"
    file.write_text("mine")
    secret.write_text("of the server")
    really = os.open

    def late(path: str, *rest: Any, **more: Any) -> int:
        file.unlink()
        file.symlink_to(secret)
        return really(path, *rest, **more)

    monkeypatch.setattr(os, "open", late)
    assert input_routes._listed(Reach(source)) == {"files": [], "is_file": False, "left_out": 1}
    stamp = (13, secret.stat().st_mtime_ns)
    with pytest.raises(NotFound):
        input_routes._read(Reach(source), [input_routes._Piece("a", stamp, 0, 13)])


def test_a_link_to_a_large_folder_elsewhere_is_not_walked(tmp_path: Path):
    (tmp_path / "a").write_text("mine")
    (tmp_path / "processes").symlink_to("/proc")
    listed = input_routes._listed(Reach(tmp_path))
    assert ([each[0] for each in listed["files"]], listed["left_out"]) == (["a"], 1)


@pytest.mark.parametrize(
    "path", ["azureml://datastores/default/paths/", "{home}/engines", "{home}"]
)
def test_an_output_elsewhere_in_the_home_is_refused_at_once(server: Served, path: str):
    spec = {"name": "j", "command": "true ${{outputs.o}}", "environment": "current"}
    spec["outputs"] = {"o": {"path": path.format(home=server.home.root)}}  # type: ignore[assignment]
    told = server.people.post("/api/v1/jobs", json={"spec": spec, "in_place": "/"})
    assert told.status_code == 422
    assert "do not share the server's disk" in told.text


def test_a_path_that_no_node_has_is_refused_at_once(server: Served, tmp_path: Path):
    made = tmp_path / "images"
    made.mkdir()

    def told(path: object, **more: Any) -> str:
        spec = {"name": "j", "command": "true", "environment": "current", **more}
        answer = server.people.post("/api/v1/jobs", json={"spec": spec, "in_place": "/"})
        assert answer.status_code == 422
        return answer.text

    out = told(made, outputs={"o": {"path": str(tmp_path / "out")}})
    assert "would be gone with its node: no volume is mounted there" in out
    assert "azureml://datastores/default/paths" in out


def test_a_path_of_a_volume_or_of_the_image_is_none_of_ours(tmp_path: Path):
    mounted = OWN._replace(mounts=lambda options: [str(tmp_path / "volume")])
    (tmp_path / "volume" / "set").mkdir(parents=True)
    with served(tmp_path / "home", mounted) as server:
        inputs = {
            "i": {"path": str(tmp_path / "volume" / "set")},
            "image": {"path": "/only/in/the/image"},
        }
        submit(server, "true", inputs=inputs, outputs={"o": {"path": f"{tmp_path}/volume/out"}})


def test_of_other_disks_only_what_a_job_named_is_served(tmp_path: Path):
    data, secret = tmp_path / "data", tmp_path / "elsewhere"
    data.mkdir()
    secret.write_text("linked")
    (data / "a").write_text("0123456789")
    (data / "linked").symlink_to(secret)
    with served(tmp_path / "home", OWN._replace(end_all=None)) as server:
        (data / "token").symlink_to(server.home.token)
        (data / "self").symlink_to("/proc/self/environ")
        (data / "up").symlink_to(tmp_path)
        paths = {"d": data, "up": tmp_path, "home": server.home.root, "p": "/proc/self"}
        inputs = {name: {"path": str(path)} for name, path in paths.items()}
        submit(server, " ".join(f"${{{{inputs.{name}}}}}" for name in inputs), inputs=inputs)
        node = Client(server)
        listed = node.send("GET", "input/d").json()
        assert sorted(each[0] for each in listed["files"]) == ["a", "linked"]
        row = next(each[:3] for each in listed["files"] if each[0] == "linked")
        assert node.send("POST", "input/d", json=[[*row, 0, 6]]).content == b"linked"
        assert len(node.send("GET", "input/d/digest").json()["digest"]) == 64
        for name in ("up", "home", "p"):
            assert node.send("GET", f"input/{name}").status_code == 404, name
            assert node.send("GET", f"input/{name}/digest").status_code == 404, name
        assert node.send("GET", f"output/o/{'0' * 32}").status_code == 404


@pytest.mark.slow
def test_a_second_job_of_a_node_finds_the_input_in_its_cache(server: Served, tmp_path: Path):
    if not can_hide():
        pytest.skip("this user may not have mount namespaces")
    (server.home.data / "set").mkdir(parents=True)
    (server.home.data / "set" / "f").write_text("data")
    inputs = {"d": {"path": "azureml://datastores/default/paths/set"}}
    said = []
    for job in ("j", "k"):
        spec = {"command": "cat ${{inputs.d}}/f", "name": job}
        submit(server, **spec, nodes=1, inputs=inputs)
        nodes = Nodes(server, tmp_path / job, job)
        try:
            nodes.start(0, CACHE=str(tmp_path / "cache"))
            assert nodes.end() == [0]
        finally:
            nodes.kill()
        until(lambda name=job: job_of(server, name)["ended_at"])
        events = server.people.get(f"/api/v1/jobs/{job}/events").json()
        said += [event["data"].get("message", "") for event in events]
    assert [each for each in said if "already in the node's cache" in each]
    assert len([each for each in said if "fetched 4 bytes" in each]) == 1


@pytest.mark.slow
def test_outputs_go_to_their_paths_in_the_servers_own_store(server: Served, nodes: Nodes):
    command = (
        "n=$ALLRANKS_NODE_RANK; mkdir ${{outputs.o}}/deep; echo $n > ${{outputs.o}}/deep/$n; "
        "ln -s $n ${{outputs.o}}/deep/inside-$n; ln -s ../r ${{outputs.o}}/outside-$n; "
        "echo $n > ${{outputs.m}}; echo beside > ${{outputs.m}}.tmp; "
        "echo recorded > ${{outputs.r}}/$n"
    )
    paths = "azureml://datastores/default/paths"
    larger = server.home.root.with_name("larger disk")
    larger.mkdir()
    server.home.data.symlink_to(larger)
    outputs = {
        "o": {"path": f"{paths}/runs/${{{{name}}}}"},
        "m": {"path": f"{paths}/m.pt", "type": "uri_file"},
        "l": {"path": f"{server.home.data}//runs/x/../l/"},
        "r": {},
    }
    command += "; echo $n > ${{outputs.l}}/$n"
    submit(server, command, outputs=outputs, distribution={"type": "pytorch"})
    for node in range(2):
        nodes.start(node)
    assert nodes.end() == [0, 0]
    until(lambda: job_of(server)["ended_at"])
    assert job_of(server)["error"] is None
    assert job_of(server)["status"] == "Completed"
    made = server.home.data / "runs" / "j"
    assert job_of(server)["outputs"]["o"] == str(made)
    for node in range(2):
        assert (made / "deep" / f"{node}").read_text() == f"{node}\n"
        assert os.readlink(made / "deep" / f"inside-{node}") == f"{node}"
        assert not (made / f"outside-{node}").is_symlink()
        recorded = server.home.jobs / "j" / "named-outputs"
        assert (recorded / "r" / f"{node}").read_text() == "recorded\n"
        assert not (recorded / "o").exists()
        assert (server.home.data / "runs" / "l" / f"{node}").read_text() == f"{node}\n"
        assert (recorded / "m" / "m.pt.tmp").read_text() == "beside\n"
    assert (server.home.data / "m.pt").read_text() in ("0\n", "1\n")
    assert sorted(each.name for each in server.home.data.iterdir()) == ["m.pt", "runs"]


@pytest.mark.slow
def test_the_files_of_a_job_follow_its_home(tmp_path: Path):
    """A home that moves while a job runs, or is restored elsewhere."""
    outputs = {"o": {"path": "azureml://datastores/default/paths/o"}}
    then = "echo x > ${{outputs.o}}/f; echo x > outputs/late"
    with away(tmp_path, then, outputs=outputs) as found:
        found.home.root.rename(tmp_path / "moved")
        found.over.touch()
        with served(tmp_path / "moved", found.kind, found.port) as moved:
            assert found.nodes.end() == [0]
            until(lambda: job_of(moved)["ended_at"])
            assert (moved.home.jobs / "j" / "artifacts/outputs/late").read_text() == "x\n"
            assert (moved.home.data / "o" / "f").read_text() == "x\n"
        assert not found.home.root.exists()


def test_an_output_through_a_link_of_the_store_is_refused_at_once(server: Served, tmp_path: Path):
    server.home.data.mkdir()
    (server.home.data / "images").symlink_to(tmp_path)
    spec = {"name": "j", "command": "true ${{outputs.o}}", "environment": "current"}
    spec["outputs"] = {"o": {"path": "azureml://datastores/default/paths/images/x"}}  # type: ignore[assignment]
    told = server.people.post("/api/v1/jobs", json={"spec": spec, "in_place": "/"})
    assert told.status_code == 422
    assert "images" in told.json()["message"]


def test_nodes_that_share_the_disk_have_no_use_of_these_routes(tmp_path: Path):
    with served(tmp_path / "home") as server:
        data = server.home.data / "set"
        data.mkdir(parents=True)
        where = {"d": {"path": "azureml://datastores/default/paths/set"}}
        server.submit("j", spec={"inputs": where, "command": "true ${{inputs.d}}"})
        assert Client(server).put("node-0/artifacts/outputs/x").status_code == 400
        assert Client(server).send("GET", "input/d").status_code == 404
        assert Client(server).send("GET", f"uv/{os.uname().machine}").status_code == 404


def test_only_bundles_are_served_as_such(server: Served):
    submit(server, "true")
    for digest in ("..%2Ftoken", "0" * 64, "A" * 64, "%00", ".."):
        assert Client(server).send("GET", f"bundle/{digest}").status_code in (400, 404), digest
    head = server.as_("nonsense")
    path = f"/agent/v1/0/bundle/{agent_bundle.digest()}"
    assert server.people.get(path, headers=head).status_code == 401
