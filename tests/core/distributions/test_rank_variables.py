"""What each rank finds in its environment: SPEC.md §3, word for word."""

from __future__ import annotations

import json

import pytest

from allranks.core.distributions import topology
from allranks.core.distributions.rank_variables import (
    environment,
    hostfile,
    of_node,
    whole_environment,
    without_empty_ps,
)
from allranks.core.distributions.topology import ranks
from allranks.core.plan import InputTask, OutputTask, Place, Task

PLACES = [
    Place("10.0.0.1", "alpha", (7000, 7001, 7002, 7003), "eth0"),
    Place("10.0.0.2", "beta", (8000, 8001), "eth1"),
]
FOLDERS = {
    "model_dir": "/m",
    "data_dir": "/d",
    "tensorboard_dir": "/t",
    "state_dir": "/s",
    "instance_state_dir": "/i",
}


def task(**changes: object) -> Task:
    fields = {"job": "calm_fox", "experiment": "mnist", "command": "true", "nodes": 2, **changes}
    return Task(**fields)  # type: ignore[arg-type]


def variables(of: Task, number: int, paths: dict[str, str] | None = None) -> dict[str, str]:
    return environment(of, ranks(of)[number], PLACES[: of.nodes], FOLDERS | (paths or {}))


# ---------------------------------------------------------------- every job


def test_every_job():
    found = variables(task(procs=2), 3)
    assert {k: v for k, v in found.items() if k.startswith(("AZ", "ALLRANKS"))} == {
        "ALLRANKS_STATE_DIR": "/s",
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


def test_names_that_no_shell_can_write_are_there_in_both_forms():
    inputs = (
        InputTask("my-x", text="1"),
        InputTask("1x", text="2"),
        InputTask("a.b", source="/a"),
        InputTask("c-d", source="/b"),
        InputTask("c_d", source="/c"),
    )
    paths = {f"inputs.{each.name}": each.text or each.source for each in inputs}
    given = task(nodes=1, inputs=inputs, outputs=(OutputTask("o-p", "/o"),))
    found = variables(given, 0, {**paths, "outputs.o-p": "/o"})
    ours = ("AZUREML_PARAMETER_", "AZURE_ML_INPUT_", "AZURE_ML_OUTPUT_")
    assert {k: v for k, v in found.items() if k.startswith(ours)} == {
        "AZUREML_PARAMETER_my-x": "1",
        "AZUREML_PARAMETER_my_x": "1",
        "AZUREML_PARAMETER_1x": "2",
        "AZURE_ML_INPUT_a.b": "/a",
        "AZURE_ML_INPUT_a_b": "/a",
        "AZURE_ML_INPUT_c-d": "/b",
        "AZURE_ML_INPUT_c_d": "/c",
        "AZURE_ML_OUTPUT_o-p": "/o",
        "AZURE_ML_OUTPUT_o_p": "/o",
    }
    assert (found["SM_CHANNEL_A_B"], found["SM_HP_MY_X"]) == ("/a", "1")


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
    own |= {"SM_CURRENT_HOST", "SSM_HOST_RANK", "SM_RESOURCE_CONFIG", "SM_NETWORK_INTERFACE_NAME"}
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
    assert len(set(every)) == len(every) == topology.world(of)


def test_tensorflow_with_a_chief_and_an_evaluator():
    of = task(distribution="tensorflow", chiefs=1, parameter_servers=1, evaluators=1)
    config = json.loads(variables(of, 0)["TF_CONFIG"])
    assert config["task"] == {"type": "chief", "index": 0}
    assert config["cluster"] == {
        "chief": ["10.0.0.1:7000"],
        "worker": ["10.0.0.1:7001", "10.0.0.2:8000"],
        "ps": ["10.0.0.1:7002"],
        "evaluator": ["10.0.0.1:7003"],
    }


def test_a_tensorflow_that_dies_of_an_empty_ps_list_is_not_shown_it():
    found = without_empty_ps(variables(task(distribution="tensorflow"), 1))
    assert list(json.loads(found["TF_CONFIG"])["cluster"]) == ["worker"]
    served = variables(task(distribution="tensorflow", parameter_servers=1), 1)
    assert without_empty_ps(served) == served
    for own in ("not JSON", "[]", "{}"):
        assert without_empty_ps({"TF_CONFIG": own}) == {"TF_CONFIG": own}
    assert without_empty_ps({}) == {}


def test_mpi_sets_nothing_of_the_other_launchers():
    found = variables(task(procs=2, distribution="mpi"), 3)
    assert not {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"} & set(found)
    assert found["AZUREML_PROCESS_NAME"] == "rank_3"


def test_deepspeed_is_pytorch_and_a_hostfile():
    of = task(procs=2, distribution="deepspeed")
    assert variables(of, 1) == variables(of._replace(distribution="pytorch"), 1)
    assert hostfile(of, PLACES) == "10.0.0.1 slots=2\n10.0.0.2 slots=2\n"


def test_horovod():
    found = variables(task(procs=2, distribution="horovod"), 3)
    assert {k: v for k, v in found.items() if k.startswith("HOROVOD")} == {
        "HOROVOD_RANK": "3",
        "HOROVOD_SIZE": "4",
        "HOROVOD_LOCAL_RANK": "1",
        "HOROVOD_LOCAL_SIZE": "2",
        "HOROVOD_CROSS_RANK": "1",
        "HOROVOD_CROSS_SIZE": "2",
        "HOROVOD_HOSTNAME": "10.0.0.2",
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": "10.0.0.1",
        "HOROVOD_GLOO_RENDEZVOUS_PORT": "7001",
    }


def test_jax():
    found = variables(task(procs=2, distribution="jax"), 3)
    assert found["JAX_COORDINATOR_ADDRESS"] == "10.0.0.1:7000"
    assert (found["JAX_NUM_PROCESSES"], found["JAX_PROCESS_ID"]) == ("4", "3")
    assert (found["OMPI_COMM_WORLD_SIZE"], found["OMPI_COMM_WORLD_RANK"]) == ("4", "3")
    assert found["OMPI_COMM_WORLD_LOCAL_RANK"] == "1"


@pytest.mark.parametrize(
    ("text", "alone", "typed"),
    [
        ("1.10", "1.10", "1.10"),
        ("1e5", "1e5", "1e5"),
        ("NaN", "NaN", "NaN"),
        ("1e400", "1e400", "1e400"),
        ("007", "007", "007"),
        ("0.1", "0.1", 0.1),
        ("-3", "-3", -3),
        ("False", "false", False),
        ("[1]", "[1]", "[1]"),
    ],
)
def test_hyperparameters_are_what_the_user_wrote(text: str, alone: str, typed: object):
    of = task(inputs=(InputTask("x", text=text),))
    found = variables(of, 0, {"inputs.x": text})
    assert found["SM_HP_X"] == alone
    assert json.loads(found["SM_HPS"], parse_constant=pytest.fail) == {"x": typed}


def test_ray_is_told_its_head_and_a_port_of_the_users_counts():
    assert variables(task(distribution="ray"), 0)["RAY_ADDRESS"] == "10.0.0.1:7000"
    of = task(distribution="ray", options={"port": 6379})
    assert variables(of, 0)["RAY_ADDRESS"] == "10.0.0.1:6379"


def test_sagemaker():
    of = task(
        inputs=(
            InputTask("lr", text="0.1"),
            InputTask("optimizer", text="adam"),
            InputTask("nesterov", text="True"),
            InputTask("train-set", source="/t"),
        ),
    )
    paths = {f"inputs.{e.name}": e.text or e.source or "" for e in of.inputs}
    found = variables(of, 1, paths)
    texts = {k: v for k, v in found.items() if k.startswith(("SM_", "SSM_"))}
    assert texts == {
        "SM_HOSTS": '["10.0.0.1", "10.0.0.2"]',
        "SM_CURRENT_HOST": "10.0.0.2",
        "SM_CHANNELS": '["train-set"]',
        "SM_CHANNEL_TRAIN_SET": "/t",
        "SM_MODEL_DIR": "/m",
        "SM_OUTPUT_DATA_DIR": "/d",
        "SM_HPS": '{"lr": 0.1, "optimizer": "adam", "nesterov": true}',
        "SM_HP_LR": "0.1",
        "SM_HP_OPTIMIZER": "adam",
        "SM_HP_NESTEROV": "true",
        "SM_RESOURCE_CONFIG": texts["SM_RESOURCE_CONFIG"],
        "SM_NETWORK_INTERFACE_NAME": "eth1",
        "SSM_NUM_NODES": "2",
        "SSM_HOST_RANK": "1",
        "SSM_OUTPUT": "/d",
        "SSM_TENSORBOARD_DIR": "/t",
        "SSM_STATE": "/s",
        "SSM_INSTANCE_STATE": "/i",
        "SSM_CHANNEL_TRAIN_SET": "/t",
    }
    assert json.loads(texts["SM_RESOURCE_CONFIG"]) == {
        "current_host": "10.0.0.2",
        "hosts": ["10.0.0.1", "10.0.0.2"],
        "network_interface_name": "eth1",
    }


# ---------------------------------------------------------------- a node's own


@pytest.mark.parametrize(("cpus", "procs", "each"), [(8, 1, 8), (8, 3, 2), (2, 8, 1), (1, 1, 1)])
def test_threads_share_the_cpus_of_a_node(cpus: int, procs: int, each: int):
    assert of_node(task(procs=procs), 0, cpus, [])["OMP_NUM_THREADS"] == str(each)


def test_gpus_are_the_nodes_for_each_of_its_ranks():
    found = of_node(task(procs=2), 0, 8, ["2", "5"])
    assert (found["CUDA_VISIBLE_DEVICES"], found["SM_NUM_GPUS"]) == ("2,5", "2")
    assert of_node(task(), 0, 8, [])["SM_NUM_GPUS"] == "0"


def test_the_users_own_value_wins_over_everything():
    of = task(distribution="pytorch", variables={"MASTER_PORT": "1", "SM_NUM_CPUS": "x"})
    paths = FOLDERS | {"name": "calm_fox"}
    found = whole_environment(of, ranks(of)[0], PLACES, paths, {"SM_NUM_CPUS": "8"})
    assert (found["MASTER_PORT"], found["SM_NUM_CPUS"]) == ("1", "x")


def test_who_names_a_tracking_server_of_their_own_shows_it_nothing_of_ours():
    ours = {"MLFLOW_TRACKING_URI": "http://127.0.0.1:1/mlflow", "MLFLOW_TRACKING_TOKEN": "secret"}
    ours |= {"MLFLOW_RUN_ID": "r", "MLFLOW_EXPERIMENT_NAME": "e"}
    one = task()
    rank = ranks(one)[0]
    assert ours.items() <= whole_environment(one, rank, PLACES, FOLDERS, ours).items()
    theirs = {"MLFLOW_TRACKING_URI": "https://mlflow.example", "MLFLOW_RUN_ID": "theirs"}
    found = whole_environment(one._replace(variables=theirs), rank, PLACES, FOLDERS, ours)
    assert {k: v for k, v in found.items() if k.startswith("MLFLOW_")} == theirs
