"""A Kubernetes that is up for the whole session, and a namespace for each test."""

from __future__ import annotations

import contextlib
import secrets
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.environments import kept
from tests.kubernetes import bed
from tests.support import Allranks, processes_of, until


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[bed.Kubernetes]:
    """Three nodes that are ready and have one image, `localhost/trainer:1`; none can be pulled."""
    if why := bed.missing():
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("kubernetes")
    with bed.running(folder, Path(tempfile.gettempdir())) as found:
        yield found


@pytest.fixture
def namespace(kubernetes: bed.Kubernetes) -> Iterator[str]:
    """A namespace of the test's own; afterwards its pods are gone, and every node is well."""
    name = f"test-{secrets.token_hex(4)}"
    meta = {"metadata": {"name": name}}
    kubernetes.create("api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", **meta})
    account = f"api/v1/namespaces/{name}/serviceaccounts/default"
    until(lambda: kubernetes.api.get(account).is_success)
    yield name
    kubernetes.control_plane("resume")
    kubernetes.nodes("heal")
    # By itself a namespace takes five seconds before it begins to delete.
    kubernetes.delete(f"apis/batch/v1/namespaces/{name}/jobs", propagationPolicy="Background")
    pods = f"api/v1/namespaces/{name}/pods"
    kubernetes.delete(pods, gracePeriodSeconds="1")
    for each in kubernetes.get(pods)["items"]:
        if each["metadata"].get("finalizers"):
            path = f"{pods}/{each['metadata']['name']}"
            kubernetes.patch(path, {"metadata": {"finalizers": None}})
    until(lambda: not kubernetes.get(pods)["items"], seconds=60)
    kubernetes.delete(f"api/v1/namespaces/{name}")


def apply(kubernetes: bed.Kubernetes, objects: Sequence[Mapping[str, Any]]) -> None:
    """Create objects in their order, as `kubectl apply` does; a namespace may be there already."""
    for each in objects:
        group, kind = each["apiVersion"], f"{each['kind'].lower()}s"
        space = each["metadata"].get("namespace")
        root = "api/v1" if group == "v1" else f"apis/{group}"
        if kind != "namespaces":
            kubernetes.create(f"{root}{f'/namespaces/{space}' if space else ''}/{kind}", each)


@contextlib.contextmanager
def compute(
    kubernetes: bed.Kubernetes, namespace: str, allranks: Allranks, home: Path, *options: str
) -> Iterator[Allranks]:
    """The command line with the compute `there`; afterwards nothing of the home runs."""
    make = ["compute", "create", "there", "--type", "kubernetes", "--namespace", namespace]
    make += ["--kubeconfig", str(kubernetes.kubeconfig), "--image", "localhost/trainer:1"]
    done = allranks(*make, "--cpus", "1.2", *options)
    assert done.returncode == 0, done.stderr
    yield allranks
    allranks("server", "stop", "--all")
    # Agents on a node that was cut off wait for their server, until their kubelet ends them.
    kubernetes.nodes("heal")
    until(lambda: not processes_of(home), 90)


@pytest.fixture
def there(
    kubernetes: bed.Kubernetes, namespace: str, allranks: Allranks, home: Path, tmp_path: Path
) -> Iterator[Allranks]:
    """The command line with `there`, a compute of three nodes."""
    options = ["--home-volume", "host"]
    # Programs and libraries of this machine, and what a test makes: as on a shared disk.
    for folder in dict.fromkeys(("/usr", sys.prefix, str(kept()))):
        options += ["--volumes", f"host:{folder}={folder}:ro"]
    options += ["--volumes", f"host:{tmp_path}={tmp_path}"]
    with compute(kubernetes, namespace, allranks, home, *options) as made:
        yield made
