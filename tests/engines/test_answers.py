"""Clusters that lie: an answer of any length, depth or shape is a sentence, and ends no job."""

import contextlib
import http.server
import json
import subprocess
import tempfile
import threading
import time

import pytest

from allranks.core.plan import Gang
from allranks.engines import answers
from allranks.engines.base import Handle
from allranks.engines.kubernetes.engine import KubernetesEngine
from allranks.engines.ray import cluster
from allranks.engines.ray.engine import RayEngine
from allranks.engines.slurm.engine import SlurmEngine
from allranks.errors import EngineError
from allranks.statuses import GangState

DEEP = b"[" * 200_000
WRONG = [
    b"5",
    b'"x"',
    b"[1]",
    b"{}",
    b"null",
    DEEP,
    b'{"data": null, "items": 5, "metadata": 1}',
    b'{"data": {"summary": "x", "result": {"result": [5]}}, "items": ["x"]}',
    b'{"data": {"summary": [{"raylet": {"resourcesTotal": {"GPU": 1e400}}}]}, "items": [[]]}',
    b'{"ray_version": "2.' + b"9" * 5000 + b'", "major": "' + b"9" * 5000 + b'", "minor": "1"}',
]


class Liar(http.server.BaseHTTPRequestHandler):
    """Answers every request with ``body``; None: without end."""

    body: bytes | None = b""

    def answer(self) -> None:
        self.send_response(200)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(self.body or b"")
            while self.body is None:
                self.wfile.write(b"[" * 65536)

    do_GET = do_POST = do_PATCH = do_DELETE = do_PUT = answer

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def liar():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Liar) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def engines(server, folder):
    from tests.engines.kubernetes import api_server

    url = f"http://127.0.0.1:{server.server_port}"
    config = api_server.kubeconfig(folder, type("At", (), {"url": url}))
    kubernetes = KubernetesEngine(folder, folder / "k", folder / "n", config)
    return [RayEngine(folder / "r", folder / "n", {"address": url}), kubernetes], config


@pytest.mark.medium
@pytest.mark.parametrize("body", WRONG, ids=range(len(WRONG)))
def test_an_answer_of_another_shape_is_an_error_of_the_engine(liar, tmp_path, monkeypatch, body):
    monkeypatch.setattr(Liar, "body", body)
    (ray, kubernetes), config = engines(liar, tmp_path)
    gang = Gang("a.1", 1, ("true",), options={"image": "i", "home_volume": "v"})
    for engine, options in ((ray, {"address": ray._dashboard.url}), (kubernetes, config)):
        for call, value in (
            (engine.check, options),
            (engine.hosts, options),
            (engine.submit, gang),
            (engine.stop, Handle("a.1")),
        ):
            with contextlib.suppress(EngineError):
                call(value)
    with contextlib.suppress(EngineError):
        assert ray.poll([Handle("a.1")])["a.1"].state in (GangState.UNKNOWN, GangState.GONE)


@pytest.mark.medium
def test_an_answer_without_end_is_not_read(liar, tmp_path, monkeypatch):
    monkeypatch.setattr(answers, "LONGEST", 1 << 20)
    monkeypatch.setattr(Liar, "body", None)
    (ray, kubernetes), config = engines(liar, tmp_path)
    for engine, options in ((ray, {"address": ray._dashboard.url}), (kubernetes, config)):
        with pytest.raises(EngineError, match="does not end"):
            engine.hosts(options)


def test_names_of_other_jobs_actors_are_no_numbers(monkeypatch):
    class Dashboard:
        def state(self, path):
            return [{"name": f"a.{node}", "state": "DEAD"} for node in ("²", "9" * 5000, "0")]

    job = {"submission_id": "a", "metadata": {"allranks": json.dumps({"nodes": 1})}}
    assert cluster.placed(Dashboard(), [job])["a"].lost == (0,)


@pytest.mark.parametrize("script", ["yes", "sleep 60", "yes >&2", "sleep 60 & echo"])
def test_a_command_of_a_cluster_ends(monkeypatch, script):
    monkeypatch.setattr(answers, "LONGEST", 1 << 20)
    began = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        answers.output_of(["sh", "-c", script], "", {"PATH": "/usr/bin:/bin"}, 0.2)
    assert time.monotonic() - began < 5


def test_a_command_of_a_cluster_needs_no_disk_for_its_input(monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")  # as a full one
    done = answers.output_of(["cat"], "a\n" * 100_000, {"PATH": "/usr/bin:/bin"}, 20.0)
    assert (done.returncode, done.stdout) == (0, "a\n" * 100_000)


def test_what_slurm_says_may_be_any_text(tmp_path, monkeypatch):
    fakes = tmp_path / "bin"
    fakes.mkdir()
    huge = "9" * 5000
    rows = f"h|1|idle|1/{huge}/3/4|{huge}|gpu:{huge}|gpu:{huge}||"
    for name in ("squeue", "sinfo", "sacct", "sbatch", "scancel", "scontrol"):
        (fakes / name).write_text(f"#!/bin/sh\necho '{rows}'\nprintf '\\033[31m\\377|||||\\n'\n")
        (fakes / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{fakes}:/usr/bin:/bin")
    engine = SlurmEngine(tmp_path / "e", tmp_path / "n")
    assert engine.poll([Handle("a.1", "7")])["a.1"].state is GangState.GONE
    with pytest.raises(EngineError, match="Slurm answers as it never should"):
        engine.hosts({})
    with pytest.raises(EngineError, match="did not say the number"):
        engine.submit(Gang("a.1", 1, ("true",), options={"shared_home": "yes"}))
