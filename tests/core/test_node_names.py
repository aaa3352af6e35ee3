"""Nodes with their hosts."""

from __future__ import annotations

import pytest

from allranks.core.node_names import with_host

HOSTS = {0: "gpu-00", 1: "gpu-07"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("rank 3 on node 1 exited with code 7", "rank 3 on node 1 (gpu-07) exited with code 7"),
        ("node 0 was lost: node 1 is well", "node 0 (gpu-00) was lost: node 1 is well"),
        ("node 2 builds its environment", "node 2 builds its environment"),
        ("Kubernetes: node 1 on gpu-07: it was evicted", None),
        ("node 1 (gpu-07) was lost", None),
        ("its nodes did not answer; anode 1", None),
    ],
)
def test_the_first_node_gets_its_host(text: str, expected: str | None):
    assert with_host(text, HOSTS.get) == (expected or text)
