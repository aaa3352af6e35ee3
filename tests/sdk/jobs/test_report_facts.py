"""From the server's answers to facts."""

from __future__ import annotations

import math

from allranks.core.insights.job_facts import Point, Series
from allranks.sdk.jobs.report_facts import facts

JOB = {
    "name": "j",
    "status": "Failed",
    "command": "torchrun --nnodes 2 train.py",
    "distribution": "tensorflow",
    "nodes": 2,
    "processes": 3,
    "gpus_per_node": 4,
    "code": "abc",
    "attempts": 2,
    "error": {"reason": "RANK_KILLED"},
    "compute": "c",
    "environment": {"name": "e:1"},
    "created_at": "2026-01-01T00:00:00+00:00",
    "started_at": "2026-01-01T00:00:05+00:00",
    "ranks_ended_at": "2026-01-01T00:01:05+00:00",
    "ended_at": None,
    "ranks": [{"rank": r, "role": role} for r, role in enumerate(["chief", "worker", "ps"])],
    "node_states": [{"host": "a", "cpus": 8}, {"host": None, "cpus": None}],
    "spec": {"inputs": {"b": 1, "a": 2}},
}


def test_what_the_server_tells_of_a_job() -> None:
    files = [
        {"path": "attempts/2/user_logs/std_log_process_0.txt", "size": 7},
        {"path": "attempts/1/user_logs/std_log_process_1.txt", "size": 9},
    ]
    found = facts(JOB, {}, {}, files)
    assert (found.nodes, found.ranks, found.gpus, found.attempts) == (2, 3, 4, 2)
    assert (found.reason, found.hosts, found.cpus) == ("RANK_KILLED", ("a", None), (8, None))
    assert found.started_at - found.created_at == 5
    assert found.ranks_ended_at - found.started_at == 60
    assert found.ended_at is None
    assert found.trainers == {0, 1}
    assert found.logged == {0: 7, 1: 0, 2: 0}
    assert found.request["command"] == "torchrun train.py"
    assert found.request["code"] == "abc"
    assert found.request["inputs"] == '{"a": 2, "b": 1}'


def test_series_are_those_of_the_last_attempt() -> None:
    metrics = {
        "series": [
            {
                "name": "loss",
                "rank": 1,
                "attempt": 2,
                "points": [[3, 10.5, 0.25], [4, 11, "Infinity"]],
            },
            {"name": "loss", "rank": 1, "attempt": 1, "points": [[3, 9.5, 0.5]]},
        ]
    }
    resources = {
        "series": [
            {"name": "gpu_load", "node": 1, "gpu": 0, "rank": None, "points": [[10.5, 99]]},
            {"name": "cpu", "node": 1, "gpu": None, "rank": 2, "points": []},
        ]
    }
    found = facts(JOB, metrics, resources)
    assert found.metrics == (
        Series("loss", (Point(10.5, 0.25, 3), Point(11, math.inf, 4)), rank=1),
    )
    assert found.of_ranks("loss") == {1: (Point(10.5, 0.25, 3),)}
    assert found.resources == (
        Series("gpu_load", (Point(10.5, 99),), node=1, gpu=0),
        Series("cpu", (), node=1, rank=2),
    )
    assert facts(JOB, {}, {}).metrics == ()
