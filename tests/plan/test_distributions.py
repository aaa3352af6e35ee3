"""What each rank finds in its environment: SPEC.md §3, word for word."""

from __future__ import annotations

import json

import pytest

from allranks.plan import distributions
from allranks.plan.distributions import (
    environment,
    log_name,
    ports_needed,
    ranks,
    ranks_of,
    threads,
)
from allranks.plan.plan import InputTask, OutputTask, Place, Task

PLACES = [Place("10.0.0.1", "alpha", (7000, 7001, 7002)), Place("10.0.0.2", "beta", (8000, 8001))]


def task(**changes: object) -> Task:
    fields = {"job": "calm_fox", "experiment": "mnist", "command": "true", "nodes": 2, **changes}
    return Task(**fields)  # type: ignore[arg-type]


def variables(of: Task, number: int, paths: dict[str, str] | None = None) -> dict[str, str]:
    return environment(of, ranks(of)[number], PLACES[: of.nodes], paths or {})


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
    assert len(together) == distributions.world(of)
    for node in range(2):
        assert [r.local for r in ranks_of(of, node)] == list(range(len(ranks_of(of, node))))


def test_ports_one_on_the_first_node_or_one_for_each_tensorflow_task():
    assert [ports_needed(task(procs=4, distribution="pytorch"), n) for n in (0, 1)] == [1, 0]
    assert [ports_needed(task(), n) for n in (0, 1)] == [1, 0]
    of = task(procs=2, distribution="tensorflow", parameter_servers=1)
    assert [ports_needed(of, n) for n in (0, 1)] == [3, 2]


# ---------------------------------------------------------------- every job


def test_every_job():
    found = variables(task(procs=2), 3)
    assert {k: v for k, v in found.items() if k.startswith(("AZ", "ALLRANKS"))} == {
        "AZUREML_RUN_ID": "calm_fox",
        "AZUREML_ROOT_RUN_ID": "calm_fox",
        "AZUREML_EXPERIMENT_NAME": "mnist",
        "AZUREML_NODE_COUNT": "2",
        "AZUREML_CR_NODE_RANK": "1",
        "AZUREML_PROCESS_NAME": "rank_3",
        "AZ_BATCH_NODE_LIST": "10.0.0.1;10.0.0.2",
        "AZ_BATCH_HOST_LIST": "10.0.0.1,10.0.0.2",
        "AZ_BATCH_MASTER_NODE": "10.0.0.1:7000",
        "ALLRANKS_JOB": "calm_fox",
        "ALLRANKS_NODE_RANK": "1",
        "ALLRANKS_NODES": found["ALLRANKS_NODES"],
    }
    assert json.loads(found["ALLRANKS_NODES"]) == [
        {"node": 0, "address": "10.0.0.1", "host": "alpha"},
        {"node": 1, "address": "10.0.0.2", "host": "beta"},
    ]
    assert found["PYTHONUNBUFFERED"] == "1"


def test_a_single_process_is_main_and_knows_no_framework():
    found = variables(task(nodes=1), 0)
    assert found["AZUREML_PROCESS_NAME"] == "main"
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "TF_CONFIG"} & set(found)


def test_a_worker_beside_a_parameter_server_is_not_alone():
    of = task(nodes=1, distribution="tensorflow", parameter_servers=1)
    assert variables(of, 0)["AZUREML_PROCESS_NAME"] == "rank_0"


def test_inputs_and_outputs():
    of = task(
        inputs=(InputTask("lr", text="0.1"), InputTask("data", source="/d a")),
        outputs=(OutputTask("model", "/m"),),
    )
    found = variables(of, 0, {"inputs.lr": "0.1", "inputs.data": "/d a", "outputs.model": "/m"})
    assert found["AZUREML_PARAMETER_lr"] == "0.1"
    assert found["AZURE_ML_INPUT_data"] == "/d a"
    assert found["AZURE_ML_OUTPUT_model"] == "/m"


# ---------------------------------------------------------------- frameworks


def test_pytorch():
    of = task(procs=2, distribution="pytorch")
    names = {
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "7000",
        "WORLD_SIZE": "4",
        "RANK": "2",
        "LOCAL_RANK": "0",
        "LOCAL_WORLD_SIZE": "2",
        "NODE_RANK": "1",
        "GROUP_RANK": "1",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "10.0.0.1",
        "PET_MASTER_PORT": "7000",
    }
    assert names.items() <= variables(of, 2).items()


def test_pytorch_ranks_agree_on_all_but_themselves():
    of = task(procs=2, distribution="pytorch")
    own = {"RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "PET_NODE_RANK"}
    own |= {"AZUREML_PROCESS_NAME", "AZUREML_CR_NODE_RANK", "ALLRANKS_NODE_RANK"}
    shared = [{k: v for k, v in variables(of, n).items() if k not in own} for n in range(4)]
    assert all(each == shared[0] for each in shared)
    assert [variables(of, n)["RANK"] for n in range(4)] == ["0", "1", "2", "3"]


def test_tensorflow():
    found = variables(task(distribution="tensorflow"), 1)
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {"worker": ["10.0.0.1:7000", "10.0.0.2:8000"], "ps": []},
        "task": {"type": "worker", "index": 1},
        "environment": "cloud",
    }
    assert (found["AZ_BATCHAI_TASK_TYPE"], found["AZ_BATCHAI_TASK_INDEX"]) == ("worker", "1")
    assert "RANK" not in found


def test_tensorflow_with_parameter_servers():
    of = task(distribution="tensorflow", parameter_servers=2)
    found = variables(of, 3)
    assert json.loads(found["TF_CONFIG"]) == {
        "cluster": {
            "worker": ["10.0.0.1:7000", "10.0.0.2:8000"],
            "ps": ["10.0.0.1:7001", "10.0.0.2:8001"],
        },
        "task": {"type": "ps", "index": 1},
        "environment": "cloud",
    }
    assert (found["AZ_BATCHAI_TASK_TYPE"], found["AZ_BATCHAI_TASK_INDEX"]) == ("ps", "1")


def test_no_two_tensorflow_tasks_share_an_address():
    of = task(procs=2, distribution="tensorflow", parameter_servers=1)
    cluster = json.loads(variables(of, 0)["TF_CONFIG"])["cluster"]
    every = cluster["worker"] + cluster["ps"]
    assert len(set(every)) == len(every) == distributions.world(of)


# ---------------------------------------------------------------- logs and threads


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


@pytest.mark.parametrize(("cpus", "local", "each"), [(8, 1, 8), (8, 3, 2), (2, 8, 1), (1, 1, 1)])
def test_threads_share_the_cpus_of_a_node(cpus: int, local: int, each: int):
    assert threads(cpus, local) == {"OMP_NUM_THREADS": str(each)}
