"""Endpoints whose replicas are pods: reached through channels, replaced when their node is lost."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.test_slurm_endpoints import SERVER
from tests.kubernetes.bed import Kubernetes
from tests.kubernetes.conftest import compute
from tests.support import Allranks, answer, kill_server, until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(600)]


@pytest.fixture
def there(
    kubernetes: Kubernetes, namespace: str, allranks: Allranks, home: Path, tmp_path: Path
) -> Iterator[Allranks]:
    """Pods that do not see the home; they see the folder by which the test ends an answer."""
    options = ["--topology-spread", "kubernetes.io/hostname"]
    (tmp_path / "signs").mkdir()
    for folder, rights in (("/usr", ":ro"), (sys.prefix, ":ro"), (str(tmp_path / "signs"), "")):
        options += ["--volumes", f"host:{folder}={folder}{rights}"]
    with compute(kubernetes, namespace, allranks, home, *options) as made:
        yield made


def replicas(there: Allranks, deployment: str) -> list[dict[str, Any]]:
    shown = answer(there, "deployment", "show", deployment, "-e", "far")
    return [item for item in shown["replicas"] if item["ready"]]


def test_replicas_in_pods(
    there: Allranks, kubernetes: Kubernetes, namespace: str, code: Path, home: Path, tmp_path: Path
) -> None:
    (code / "serve.py").write_text(SERVER)
    deployment = {
        "name": "blue",
        "endpoint_name": "far",
        "command": "exec python serve.py",
        "code": ".",
        "instance_count": 2,
        "environment_variables": {"FOLDER": str(tmp_path / "signs")},
        "request_settings": {"request_timeout_ms": 120_000},
    }
    (code / "blue.yml").write_text(json.dumps(deployment))
    # As in Azure's files, the endpoint says where its replicas run.
    (code / "endpoint.yml").write_text("name: far\ncompute: azureml:there\nauth_mode: key\n")
    assert there("endpoint", "create", "-f", "endpoint.yml").returncode == 0
    made = there("deployment", "create", "-f", "blue.yml", "--all-traffic", timeout=200)
    assert made.returncode == 0, made.stderr
    uri = answer(there, "endpoint", "show", "far")["scoring_uri"].removesuffix("score")
    key = answer(there, "endpoint", "get-credentials", "far")["primaryKey"]

    def request(path: str, body: bytes | None = None) -> HTTPResponse:
        headers = {"Authorization": f"Bearer {key}"}
        sent = urllib.request.Request(uri + path, body, headers)
        response: HTTPResponse = urllib.request.urlopen(sent, timeout=120)
        return response

    # Streams in both directions, while the other pod answers.
    flood = os.urandom(3_000_000)
    with request("go") as stream:
        first = stream.read1(100)
        with request("up", flood) as back:
            assert back.read() == hashlib.sha256(flood).hexdigest().encode() + flood[::-1]
        with request("") as other:
            assert other.read() != first
        (tmp_path / "signs" / "go").touch()
        assert stream.read() == b""

    # A killed server finds the same pods again.
    before = {item["job"] for item in replicas(there, "blue")}
    kill_server(home)
    assert there("server", "start").returncode == 0

    def is_answered() -> bool:
        with contextlib.suppress(urllib.error.HTTPError), request(""):
            return True
        return False

    until(is_answered, 60)
    assert {item["job"] for item in replicas(there, "blue")} <= before

    # A model with a scoring script takes the traffic; then a lost node's pod comes elsewhere.
    (code / "score.py").write_text(
        "import os, pathlib, socket\n"
        "def init(): pass\n"
        "def run(data):\n"
        "    model = pathlib.Path(os.environ['AZUREML_MODEL_DIR'], 'weights.txt')\n"
        "    return [socket.gethostname(), model.read_text()]\n"
    )
    (code / "weights.txt").write_text("heavy")
    scored = {
        "name": "green",
        "endpoint_name": "far",
        "model": {"path": "weights.txt"},
        "code_configuration": {"code": ".", "scoring_script": "score.py"},
        "compute": "there",
    }
    (code / "green.yml").write_text(json.dumps(scored))
    made = there("deployment", "create", "-f", "green.yml", "--all-traffic", timeout=200)
    assert made.returncode == 0, made.stderr
    with request("score", b"{}") as scores:
        pod, model = json.load(scores)
    assert model == "heavy"
    # Pods of what is deleted end, and there is room for another one.
    assert there("deployment", "delete", "blue", "-e", "far", "--yes").returncode == 0
    pods = f"api/v1/namespaces/{namespace}/pods"
    until(lambda: len(kubernetes.get(pods)["items"]) == 1, 60)
    (first_replica,) = replicas(there, "green")
    (node,) = (
        item["spec"]["nodeName"]
        for item in kubernetes.get(pods)["items"]
        if item["spec"].get("hostname") == pod
    )
    kubernetes.nodes("kill", node)

    def is_elsewhere() -> bool:
        ready = replicas(there, "green")
        return bool(ready) and ready[0]["job"] != first_replica["job"]

    until(is_elsewhere, 150)
    with request("score", b"{}") as scores:
        assert json.load(scores)[0] != pod
    kubernetes.nodes("heal")

    assert there("endpoint", "delete", "far", "--yes").returncode == 0
    until(lambda: not kubernetes.get(pods)["items"], 120)
