"""The server in a pod of the cluster, by the manifest that `compute render --server` prints."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kubernetes import images
from tests.kubernetes.bed import Kubernetes
from tests.kubernetes.conftest import apply
from tests.kubernetes.test_jobs_on_kubernetes import COUNTS, shown
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(900)]

Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(kubernetes: Kubernetes, namespace: str) -> Kubectl:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    first = ["kubectl", "--kubeconfig", str(kubernetes.kubeconfig), "-n", namespace]

    def run(*words: object) -> str:
        done = subprocess.run([*first, *map(str, words)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.fixture(params=["sqlite", "postgresql"])
def database(
    request: pytest.FixtureRequest, kubernetes: Kubernetes, kubectl: Kubectl
) -> Iterator[tuple[str, ...]]:
    """What `compute render` is told about where the server's database is."""
    if request.param == "sqlite":
        yield ()
        return
    postgres = pytest.importorskip("tests.postgres")
    if postgres.programs() is None:
        pytest.skip("PostgreSQL is not installed: apt-get install postgresql")
    with postgres.cluster(kubernetes.machine) as cluster:
        url = f"--from-literal=url={cluster.database()}"
        kubectl("create", "secret", "generic", "the-database", url)
        yield "--database", "the-database"


@pytest.fixture
def server(
    kubernetes: Kubernetes,
    namespace: str,
    allranks: Allranks,
    kubectl: Kubectl,
    database: tuple[str, ...],
    tmp_path: Path,
) -> Iterator[Path]:
    """The folder of its volume. It runs and is ready."""
    archive, volume = tmp_path / "server.tar", tmp_path / "volume"
    images.write_server(archive)
    kubernetes.nodes("load", archive)
    archive.unlink()
    volume.mkdir()
    words = ("--server", "--namespace", namespace, "--image", images.SERVER, "--storage", "1Gi")
    words += ("--access-mode", "ReadWriteMany", *database)
    objects = [*yaml.safe_load_all(allranks("compute", "render", "kubernetes", *words).stdout)]
    # What a storage class would make: the same folder on each node.
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": str(volume)},
        "claimRef": {"namespace": namespace, "name": "allranks"},
        "persistentVolumeReclaimPolicy": "Retain",
    }
    meta = {"name": namespace}
    disk = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": meta, "spec": spec}
    apply(kubernetes, [disk, *objects])
    kubectl("rollout", "status", "deployment/allranks", "--timeout", "120s")
    yield volume
    kubectl("delete", "deployment", "allranks", "--wait=true")
    nodes = f"allranks-nodes-{namespace}"
    for kind in ("clusterrolebindings", "clusterroles"):
        kubernetes.delete(f"apis/rbac.authorization.k8s.io/v1/{kind}/{nodes}")
    kubernetes.delete(f"api/v1/persistentvolumes/{namespace}")


@contextmanager
def forwarded(kubernetes: Kubernetes, namespace: str) -> Iterator[str]:
    """The address by which a person reaches the server."""
    first = ["kubectl", "--kubeconfig", str(kubernetes.kubeconfig), "-n", namespace]
    command = [*first, "port-forward", "deployment/allranks", ":7443"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield f"https://{line.partition(' -> ')[0].rpartition(' ')[2]}"
        finally:
            process.kill()


def test_a_job_from_outside_outlives_the_servers_pod(
    server: Path,
    database: tuple[str, ...],
    kubernetes: Kubernetes,
    namespace: str,
    kubectl: Kubectl,
    allranks: Allranks,
):
    assert bool(database) != bool([*server.rglob("allranks.db")])
    inside = ("exec", "deployment/allranks", "--", "allranks", "server")
    env = {
        "ALLRANKS_TOKEN": kubectl(*inside, "token", "create", "ann", "--role", "admin").strip(),
        "ALLRANKS_FINGERPRINT": json.loads(kubectl(*inside, "status", "--json"))["fingerprint"],
        # This machine's kubeconfig is none of the server's, which has a service account.
        "KUBECONFIG": str(kubernetes.kubeconfig),
    }

    def ann(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
        return allranks(*words, env=env, **more)

    with forwarded(kubernetes, namespace) as env["ALLRANKS_SERVER"]:
        make = ("compute", "create", "here", "--type", "kubernetes", "--default", "--cpus", 1)
        made = ann(*make, "--image", images.TRAINER, "--home-volume", "pvc:allranks", "--json")
        assert made.returncode == 0, made.stderr
        assert json.loads(made.stdout)["door"].startswith(f"https://allranks.{namespace}.svc:")
        words = ("run", "--name", "j", "-n", 2, "--detach", "--", "python3", "-c", COUNTS, 100)
        done = ann(*words)
        assert done.returncode == 0, done.stderr
        until(lambda: "step 5\n" in ann("job", "logs", "j", "--rank", 1).stdout, 30)
    before = pod_of(kubernetes, namespace)
    kubectl("delete", "pod", before, "--wait=true", "--grace-period=5")
    kubectl("rollout", "status", "deployment/allranks", "--timeout", "120s")
    assert pod_of(kubernetes, namespace) != before
    with forwarded(kubernetes, namespace) as env["ALLRANKS_SERVER"]:
        ann("job", "wait", "j", "--timeout", 90, timeout=30)
        job = shown(ann, "j")
        assert (job["status"], job["attempts"]) == ("Completed", 1), job["error"]
        for rank in range(2):
            lines = ann("job", "logs", "j", "--rank", rank).stdout.splitlines()
            assert lines == ["from 0", *(f"step {step}" for step in range(1, 101))]


def pod_of(kubernetes: Kubernetes, namespace: str) -> str:
    """The living pod of the Deployment."""
    label = {"labelSelector": "app.kubernetes.io/component=server"}
    items: list[Any] = kubernetes.get(f"api/v1/namespaces/{namespace}/pods", **label)["items"]
    alive = [each for each in items if "deletionTimestamp" not in each["metadata"]]
    (name,) = (each["metadata"]["name"] for each in alive)
    return str(name)
