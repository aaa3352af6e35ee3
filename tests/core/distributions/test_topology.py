"""Which ranks a job has, where they run, and what their logs are called."""

from __future__ import annotations

import pytest

from allranks.core.distributions import topology
from allranks.core.distributions.topology import log_name, ports_needed, ranks, ranks_of
from allranks.core.plan import Task


def task(**changes: object) -> Task:
    fields = {"job": "calm_fox", "experiment": "mnist", "command": "true", "nodes": 2, **changes}
    return Task(**fields)  # type: ignore[arg-type]


# ---------------------------------------------------------------- ranks


def test_ranks_are_numbered_node_by_node():
    found = [(r.rank, r.node, r.local) for r in ranks(task(procs=2))]
    assert found == [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)]


def test_parameter_servers_come_last_one_a_node_in_turn():
    found = ranks(task(procs=2, distribution="tensorflow", parameter_servers=3))
    assert [(r.rank, r.node, r.local, r.role, r.task_index) for r in found[3:]] == [
        (3, 1, 1, "worker", 3),
        (4, 0, 2, "ps", 0),
        (5, 1, 2, "ps", 1),
        (6, 0, 3, "ps", 2),
    ]
    assert [r.service for r in found] == [False] * 4 + [True] * 3


@pytest.mark.parametrize("servers", [0, 1, 3])
def test_every_rank_is_on_one_node(servers: int):
    of = task(procs=3, parameter_servers=servers)
    together = [rank for node in range(2) for rank in ranks_of(of, node)]
    assert sorted(together) == sorted(ranks(of))
    assert len(together) == topology.world(of)
    for node in range(2):
        assert [r.local for r in ranks_of(of, node)] == list(range(len(ranks_of(of, node))))


def test_ports_one_on_the_first_node_or_one_for_each_tensorflow_task():
    assert [ports_needed(task(procs=4, distribution="pytorch"), n) for n in (0, 1)] == [1, 0]
    assert [ports_needed(task(), n) for n in (0, 1)] == [1, 0]
    of = task(procs=2, distribution="tensorflow", parameter_servers=1)
    assert [ports_needed(of, n) for n in (0, 1)] == [3, 2]


def test_ports_for_what_listens_beside_the_ranks():
    def ports(kind: str) -> list[int]:
        return [ports_needed(task(procs=2, distribution=kind), node) for node in (0, 1)]

    assert ports("mpi") == [1, 1]
    assert ports("horovod") == ports("ray") == [2, 0]
    assert ports("jax") == ports("pytorch") == [1, 0]
    assert ports("deepspeed") == [2, 1]


def test_a_chief_is_rank_0_and_evaluators_come_last():
    of = task(distribution="tensorflow", chiefs=1, parameter_servers=1, evaluators=1)
    found = [(r.role, r.node, r.local, r.task_index, r.service) for r in ranks(of)]
    assert found == [
        ("chief", 0, 0, 0, False),
        ("worker", 0, 1, 0, True),
        ("worker", 1, 0, 1, True),
        ("ps", 0, 2, 0, True),
        ("evaluator", 0, 3, 0, False),
    ]


def test_a_ray_job_has_one_rank_on_the_head():
    of = task(procs=1, nodes=3, distribution="ray")
    assert ranks(of) == [(0, 0, 0, "worker", 0, False)]
    assert topology.world(of) == 1


# ---------------------------------------------------------------- logs


@pytest.mark.parametrize(
    ("rank", "world", "name"),
    [
        (0, 1, "std_log.txt"),
        (0, 2, "std_log_process_0.txt"),
        (9, 10, "std_log_process_9.txt"),
        (0, 11, "std_log_process_00.txt"),
        (10, 11, "std_log_process_10.txt"),
        (7, 128, "std_log_process_007.txt"),
    ],
)
def test_log_names(rank: int, world: int, name: str):
    assert log_name(rank, world) == f"user_logs/{name}"


def test_log_names_sort_as_ranks_do():
    names = [log_name(rank, 64) for rank in range(64)]
    assert names == sorted(names)
