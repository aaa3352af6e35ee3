"""What the Ray engine says where no Ray is: of itself, and of whatever else answers."""

from __future__ import annotations

import ast
import http.server
import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.core.distributions.ray import HEAD
from allranks.core.plan import Gang
from allranks.engines.base import Handle
from allranks.engines.ray import driver
from allranks.engines.ray.engine import OPTIONS, RayEngine, bundle, cause, package
from allranks.errors import EngineError, Refused
from allranks.statuses import GangState

GANG = Gang("a job.1", 2, (sys.executable, "-P", "-m", "allranks.agent"), {"TOKEN": "s3cret"})


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address where nobody answers."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


@pytest.fixture
def stranger() -> Iterator[str]:
    """A server that has a page for every path, and none of them Ray's."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>welcome</html>")

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def empty_head() -> Iterator[str]:
    """What a head answers that no node has joined yet."""
    answers = {
        "/api/version": {"ray_version": "2.60.0"},
        "/nodes?view=summary": {"data": {"summary": [], "nodeLogicalResources": {}}},
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(answers[self.path]).encode())

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def engine(folder: Path, address: str = "") -> RayEngine:
    return RayEngine(folder / "engine", folder / "nodes", {"address": address})


def test_where_nobody_answers_a_job_is_taken_on_and_nothing_is_known(tmp_path: Path, nobody: str):
    made = engine(tmp_path, nobody)
    made.admit(GANG)
    assert made.poll([Handle("a.1")])["a.1"].state is GangState.UNKNOWN
    for ask in (made.submit, lambda gang: made.stop(Handle(gang.key))):
        with pytest.raises(EngineError, match="does not answer") as caught:
            ask(GANG)
        assert not isinstance(caught.value, Refused)


def test_where_nobody_answers_no_compute_can_be_made(tmp_path: Path, nobody: str):
    with pytest.raises(EngineError, match="does not answer") as caught:
        engine(tmp_path).check({"address": nobody})
    assert "--dashboard-host" in (caught.value.hint or "")


def test_a_head_without_nodes_is_noted(tmp_path: Path, empty_head: str):
    note = engine(tmp_path).check({"address": empty_head})
    assert note == (
        f"Ray's head at {empty_head} lists no live node: jobs will wait until one joins it"
    )


@pytest.mark.parametrize("address", ["ray://head:10001", "http://", "http://a:b", "stranger"])
def test_what_is_not_ray_is_refused(tmp_path: Path, stranger: str, address: str):
    address = stranger if address == "stranger" else address
    with pytest.raises(Refused, match="not Ray's dashboard") as caught:
        engine(tmp_path).check({"address": address})
    assert "8265" in (caught.value.hint or "")


def test_what_is_rendered_is_what_is_sent_but_for_the_secrets(tmp_path: Path):
    made = engine(tmp_path)
    shown = json.loads(made.render(GANG))
    assert not (tmp_path / "engine").exists()  # to look touches nothing
    assert shown["entrypoint_num_cpus"] == 0
    env = shown["runtime_env"]["env_vars"]
    assert json.loads(env["ALLRANKS_RAY_SECRETS"]) == {"TOKEN": "…"}
    told = json.loads(env["ALLRANKS_RAY_GANG"])
    assert told["argv"] == ["python", "-P", "-m", "allranks.agent"]
    assert (told["nodes"], told["each"]) == (2, {"CPU": 1})


def test_ids_are_of_the_home_and_of_harmless_characters(tmp_path: Path):
    one, other = engine(tmp_path / "one"), engine(tmp_path / "other")
    assert one.id("a.1") != other.id("a.1")
    assert one.id("a.1") == engine(tmp_path / "one").id("a.1")
    assert one.id("a/b.1") != one.id("a_b.1")
    assert "/" not in one.id("a/b.1")


def test_the_package_is_the_same_bytes_each_time_and_holds_no_server():
    name, content = package()
    package.cache_clear()
    assert package() == (name, content)
    assert len(content) < 1 << 20


@pytest.mark.parametrize(
    ("needs", "each"),
    [
        ({}, {"CPU": 1}),
        ({"processes": 8}, {"CPU": 8}),
        ({"processes": 8, "cpus": 2.5}, {"CPU": 2.5}),
        ({"gpus": 4, "memory": 1 << 30}, {"CPU": 1, "GPU": 4, "memory": 1 << 30}),
        ({"options": {"resources": ["a:b=0.1", "TPU=4"]}}, {"CPU": 1, "a:b": 0.1, "TPU": 4}),
    ],
)
def test_what_a_node_is_to_have(needs: dict, each: dict):
    assert bundle(GANG._replace(**needs)) == each


@pytest.mark.parametrize("line", ["TPU", "=4", "TPU=", "TPU=0", "TPU=-1", "TPU=lots"])
def test_a_resource_that_is_none_is_refused(line: str):
    with pytest.raises(Refused, match="not a resource"):
        bundle(GANG._replace(options={"resources": [line]}))


def test_a_python_without_ray_is_told(tmp_path: Path):
    """As none has without its packages."""
    argv = [sys.executable, "-IS", driver.__file__]
    env = {driver.GANG: "{}", driver.SECRETS: "{}"}
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == driver.NEVER, done.stderr
    assert f"allranks: {sys.executable} has no Ray" in done.stdout


def test_a_python_that_is_too_old_is_told(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    assert driver.main() == driver.NEVER
    assert "Ray runs on Python 3.9.1" in capsys.readouterr().out
    ast.parse(Path(driver.__file__).read_text(), feature_version=(3, 8))


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ("Job failed.\nallranks: node 1 is lost: x\nallranks: y\n(noise)", "node 1 is lost: x"),
        ("runtime_env setup failed:\nno room\n", "no room"),
        ("", "the job failed, and Ray gives no reason"),
    ],
)
def test_the_cause_is_the_drivers_first_sentence_or_rays_last(message: str, why: str):
    assert cause(message) == why


def test_only_what_says_which_cluster_connects():
    assert {option.name for option in OPTIONS if not option.connects} == {
        "resources",
        "shared_home",
    }


@pytest.mark.parametrize("client", [True, False])
def test_a_head_gets_a_port_for_clients_only_with_their_packages(tmp_path: Path, client: bool):
    """Plain Ray exits with 1 at the option: it requires `ray[client]`."""
    (tmp_path / "python").symlink_to(sys.executable)
    if client:
        (tmp_path / "grpc.py").touch()
    else:
        (tmp_path / "grpc.py").write_text("raise ImportError")
    words = ("/bin/echo", "start", "--head", "a b")
    env = {"PATH": f"{tmp_path}:/usr/bin", "PYTHONPATH": str(tmp_path)}
    script = HEAD.replace("PORT", "7001")
    done = subprocess.run(
        ["/bin/bash", "-c", script, "ray", *words], env=env, capture_output=True, text=True
    )
    option = "--ray-client-server-port 7001 " if client else ""
    assert (done.stdout, done.stderr) == (f"start {option}--head a b\n", "")
