"""A Kubernetes that is up for the whole session, and a namespace for each test."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes import bed
from tests.support import until


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
