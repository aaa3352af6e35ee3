"""Images that do not fit, and namespaces that limit what pods may have."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.containers.image import PYTHON
from tests.kubernetes import images
from tests.kubernetes.bed import CONTROL_PLANE, Kubernetes
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(600)]

HI = ("-c", "there", "--", "bash", "-c", "echo hi")


def shown(there: Allranks, name: str) -> Any:
    return json.loads(there("job", "show", name, "--json").stdout)


def of_job(**options: object) -> tuple[object, ...]:
    """Engine options of one job, as words of the command line."""
    given = (f"resources.properties.kubernetes.{key}={value}" for key, value in options.items())
    return tuple(word for each in given for word in ("--set", each))


def test_an_image_of_another_architecture(there: Allranks, kubernetes: Kubernetes, tmp_path: Path):
    name, archive = "localhost/other-machine:1", tmp_path / "foreign.tar"
    binaries = subprocess.run([CONTROL_PLANE, "binaries"], capture_output=True, text=True).stdout
    images.write_foreign(archive, Path(binaries.strip()) / "pause", name, "bin/bash")
    kubernetes.nodes("load", archive)
    done = there("run", "--name", "other", *of_job(image=name, volumes="[]"), *HI, timeout=120)
    assert done.returncode == 1
    error = shown(there, "other")["error"]
    assert "exec format error (the image is for another architecture" in error["message"], error
    assert error["reason"] == "SETUP_FAILED"


def test_an_image_without_python_gets_the_agents(
    there: Allranks, kubernetes: Kubernetes, tmp_path: Path
):
    name, archive = "localhost/no-python:1", tmp_path / "bare.tar"
    images.write_without_python(archive, name)
    kubernetes.nodes("load", archive)
    bare = of_job(image=name, volumes="[]")
    done = there("run", "--name", "without", *bare, *HI, timeout=120)
    assert done.returncode == 1
    error = shown(there, "without")["error"]
    assert "python3: not found" in error["message"], error
    assert "agent_image" in error["message"], error
    prefix = str(Path(PYTHON).parent)
    copied = of_job(agent_image="localhost/trainer:1", agent_python=prefix)
    done = there("run", "--name", "with", *bare, *copied, *HI, timeout=120)
    assert done.stdout == "hi\n", done.stderr


def test_limits_of_the_namespace_apply_to_pods(
    there: Allranks, kubernetes: Kubernetes, namespace: str
):
    """Defaults are filled in; what is out of bounds is told while the job waits."""
    limits = {"type": "Container", "default": {"memory": "300Mi"}, "max": {"cpu": "1500m"}}
    kubernetes.create(
        f"api/v1/namespaces/{namespace}/limitranges",
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "team"},
            "spec": {"limits": [limits]},
        },
    )
    done = there("run", "--name", "small", "-n", 2, *HI, timeout=120)
    assert done.stdout == "hi\nhi\n", done.stderr
    words = ("run", "--detach", "--name", "large", *of_job(cpus=2), *HI)
    assert there(*words).returncode == 0
    until(
        lambda: "must be less than or equal to cpu limit of 1500m" in str(shown(there, "large")), 60
    )
    assert shown(there, "large")["status"] == "Queued"
    there("job", "cancel", "large")
    until(lambda: shown(there, "large")["status"] == "Canceled", 60)


def test_a_job_waits_for_its_quota_and_then_runs(
    there: Allranks, kubernetes: Kubernetes, namespace: str
):
    kubernetes.fill(namespace)
    quota = kubernetes.limit(namespace, {"pods": "2"})
    words = ("run", "--detach", "--name", "waits", "-n", 2, *HI)
    assert there(*words).returncode == 0
    until(lambda: "exceeded quota: team" in str(shown(there, "waits")), 60)
    # It does not keep the one pod that there is room for.
    until(lambda: "holds no nodes" in str(shown(there, "waits")), 60)
    kubernetes.delete(quota)
    until(lambda: shown(there, "waits")["status"] == "Completed", 60)
