"""Replicas as jobs."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allranks.server.endpoints.replica_jobs import ReplicaJobs
from allranks.statuses import JobStatus


def test_a_replica_whose_cancellation_fails_is_cancelled_at_the_next_look(tmp_path: Path):
    failures, sent = [OSError("the disk is full")], []

    def append(name: str, events: list[object]) -> None:
        if failures:
            raise failures.pop()
        sent.append(name)

    record = SimpleNamespace(status=JobStatus.RUNNING, canceled=False)
    job = SimpleNamespace(record=record, event=lambda kind: kind)
    records = SimpleNamespace(latest=lambda name: job, append=append)
    loops = SimpleNamespace(wake=lambda name: None)
    services: Any = SimpleNamespace(records=records, loops=loops)
    jobs = ReplicaJobs(services, tmp_path)
    with pytest.raises(OSError, match="full"):
        jobs.cancel("r")
    jobs.cancel("r")
    jobs.cancel("r")
    assert sent == ["r"]
