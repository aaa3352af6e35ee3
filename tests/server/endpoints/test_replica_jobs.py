"""Replicas as jobs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.server.endpoints.replica_jobs import ReplicaJobs


def test_a_replica_whose_cancellation_fails_is_cancelled_at_the_next_look(tmp_path: Path):
    failures, sent = [OSError("the disk is full")], []

    def cancel(name: str) -> None:
        if failures:
            raise failures.pop()
        sent.append(name)

    services: Any = SimpleNamespace(cancel=cancel)
    jobs = ReplicaJobs(services, tmp_path)
    with pytest.raises(OSError, match="full"):
        jobs.cancel("r")
    jobs.cancel("r")
    jobs.cancel("r")
    assert sent == ["r"]
