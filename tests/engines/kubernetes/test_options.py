"""What options say of a pod before there is one."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.engines.kubernetes.options import amounts, mounts
from allranks.errors import Refused

POD: dict[str, Any] = {"securityContext": {"runAsUser": 1000}}
MORE = {"containers": [{"name": "node", "volumeMounts": [{"name": "nvme", "mountPath": "/nvme"}]}]}


def patch(pod: dict[str, Any]) -> dict[str, Any]:
    return {"spec": {"template": {"spec": pod}}}


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({}, []),
        ({"volumes": ["pvc:data=/data", "host:/mnt/x=/x:ro", "empty=/gone"]}, ["/data", "/x"]),
        ({"volumes": ["pvc:data=/data"], "patch": patch(POD)}, ["/data"]),
        ({"patch": patch(POD | MORE)}, ["/"]),
    ],
)
def test_a_patch_that_mounts_nothing_keeps_no_output(options: dict[str, Any], found: list[str]):
    assert mounts(options) == found


@pytest.mark.parametrize("line", ["memory=200m", "ephemeral-storage=1.5m", "nvidia.com/gpu=500m"])
def test_thousandths_of_what_has_none_are_refused(line: str):
    """Kubernetes takes memory=200m as a fifth of a byte."""
    with pytest.raises(Refused, match="no whole amount") as caught:
        amounts([line])
    name, _, amount = line.partition("=")
    assert f"write {name}={amount[:-1]}Mi" in str(caught.value.hint)
    assert amounts(["cpu=200m", "memory=200Mi"]) == {"cpu": "200m", "memory": "200Mi"}
