"""What options say of a pod before there is one."""

from __future__ import annotations

from typing import Any

import pytest

from allranks.engines.kubernetes.options import mounts

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
