"""From topology to the variables of each rank: pure, the same on an agent and in a dry run.

Names and meanings are those of Azure ML, SageMaker, torchrun, TensorFlow, Horovod and JAX, by their
own documentation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from allranks.core.distributions import ray, sagemaker
from allranks.core.distributions.topology import Rank, ranks, ranks_of, world
from allranks.core.plan import Place, Task
from allranks.spec.shell.expressions import fill

# Files in the folder of an attempt. The second is there once its ranks are told to end; to the
# third, ranks append what they log by themselves.
HOSTFILE, DEADLINE, LOGGED = "hostfile", "deadline", "logged.jsonl"
_PROXY = re.compile("(https?|all)_proxy", re.IGNORECASE)


def environment(
    task: Task, rank: Rank, places: Sequence[Place], paths: Mapping[str, str]
) -> dict[str, str]:
    """What the platform sets for a rank; ``paths`` has values for ``inputs.x`` and ``outputs.y``.

    The user's own variables are not in it: they are laid over it and win.
    """
    addresses = [place.address for place in places]
    variables = {
        "AZUREML_RUN_ID": task.job,
        "AZUREML_ROOT_RUN_ID": task.parent or task.job,
        "AZUREML_EXPERIMENT_NAME": task.experiment,
        "AZUREML_NODE_COUNT": str(task.nodes),
        "AZUREML_CR_NODE_RANK": str(rank.node),
        "AZUREML_PROCESS_NAME": f"rank_{rank.rank}" if world(task) > 1 else "main",
        "AZ_BATCH_NODE_LIST": ";".join(addresses),
        "AZ_BATCH_HOST_LIST": ",".join(addresses),
        "AZ_BATCH_MASTER_NODE": f"{addresses[0]}:{places[0].ports[0]}",
        "ALLRANKS_JOB": task.job,
        "ALLRANKS_NODE_RANK": str(rank.node),
        "ALLRANKS_NODES": json.dumps(
            [{"node": i, "address": p.address, "host": p.host} for i, p in enumerate(places)]
        ),
        # A pipe or file makes Python hold its output back: people want to see it as it happens.
        "PYTHONUNBUFFERED": "1",
    }
    if not task.flight_recorder:
        variables["TORCH_FR_BUFFER_SIZE"] = "0"
    variables |= _inputs_and_outputs(task, paths)
    variables |= sagemaker.environment(task, rank, places, paths)
    of_kind = {
        "pytorch": _pytorch,
        "deepspeed": _pytorch,
        "tensorflow": _tensorflow,
        "horovod": _horovod,
        "jax": _jax,
        "ray": _ray,
    }.get(task.distribution)
    return variables if of_kind is None else variables | of_kind(task, rank, places)


def _inputs_and_outputs(task: Task, paths: Mapping[str, str]) -> dict[str, str]:
    """Where each lies, under its exact name. No shell can write ``$AZURE_ML_INPUT_my-x``, and dash
    drops such a variable: each is there with ``_`` for ``-`` and ``.``, too, unless that is the
    name of another."""
    named: dict[str, str] = {}
    for item in task.inputs:
        prefix = "AZUREML_PARAMETER_" if item.text is not None else "AZURE_ML_INPUT_"
        named[prefix + item.name] = paths[f"inputs.{item.name}"]
    for output in task.outputs:
        named[f"AZURE_ML_OUTPUT_{output.name}"] = paths[f"outputs.{output.name}"]
    for name, value in task.parameters.items():
        named[f"AZUREML_SWEEP_{name}"] = value
    return {re.sub("[.-]", "_", name): value for name, value in named.items()} | named


def _pytorch(task: Task, rank: Rank, places: Sequence[Place]) -> dict[str, str]:
    address, port = places[0].address, str(places[0].ports[0])
    return {
        "MASTER_ADDR": address,
        "MASTER_PORT": port,
        "WORLD_SIZE": str(task.nodes * task.procs),
        "RANK": str(rank.rank),
        "LOCAL_RANK": str(rank.local),
        "LOCAL_WORLD_SIZE": str(task.procs),
        "NODE_RANK": str(rank.node),
        "GROUP_RANK": str(rank.node),
        "PET_NNODES": str(task.nodes),
        "PET_NPROC_PER_NODE": str(task.procs),
        "PET_NODE_RANK": str(rank.node),
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
    }


def _tensorflow(task: Task, rank: Rank, places: Sequence[Place]) -> dict[str, str]:
    # An empty `ps` list is present: Azure's own scripts index it without asking. The others are
    # there when they have tasks: TensorFlow takes an empty chief list for a chief.
    cluster: dict[str, list[str]] = {"worker": [], "ps": []}
    for member in ranks(task):
        where = f"{places[member.node].address}:{places[member.node].ports[member.local]}"
        cluster.setdefault(member.role, []).append(where)
    config = {
        "cluster": cluster,
        "task": {"type": rank.role, "index": rank.task_index},
        "environment": "cloud",
    }
    return {
        "TF_CONFIG": json.dumps(config),
        "AZ_BATCHAI_TASK_INDEX": str(rank.task_index),
        "AZ_BATCHAI_TASK_TYPE": rank.role,
    }


def without_empty_ps(env: Mapping[str, str]) -> dict[str, str]:
    """The same, for a TensorFlow that has a coordination service: it takes the mere name ``ps`` in
    TF_CONFIG for a server to be led by, and dies by SIGSEGV when there is none (seen with 2.21)."""
    try:
        config = json.loads(env.get("TF_CONFIG", ""))
        if config["cluster"]["ps"]:
            return dict(env)
        del config["cluster"]["ps"]
    except (KeyError, TypeError, ValueError):
        return dict(env)  # the user's own, or none
    return {**env, "TF_CONFIG": json.dumps(config)}


def _horovod(task: Task, rank: Rank, places: Sequence[Place]) -> dict[str, str]:
    return {
        "HOROVOD_RANK": str(rank.rank),
        "HOROVOD_SIZE": str(task.nodes * task.procs),
        "HOROVOD_LOCAL_RANK": str(rank.local),
        "HOROVOD_LOCAL_SIZE": str(task.procs),
        "HOROVOD_CROSS_RANK": str(rank.node),
        "HOROVOD_CROSS_SIZE": str(task.nodes),
        "HOROVOD_HOSTNAME": places[rank.node].address,
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": places[0].address,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(places[0].ports[1]),
    }


def _jax(task: Task, rank: Rank, places: Sequence[Place]) -> dict[str, str]:
    """`jax.distributed.initialize()` takes the coordinator from a variable of its own, but how many
    processes there are only from a launcher it knows. Open MPI's variables are what it asks for
    first, and what the fewest other libraries look at."""
    address, port = places[0].address, places[0].ports[0]
    count = str(task.nodes * task.procs)
    number = str(rank.rank)
    return {
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        "JAX_COORDINATOR_PORT": str(port),
        "JAX_NUM_PROCESSES": count,
        "JAX_PROCESS_ID": number,
        "OMPI_MCA_orte_hnp_uri": f"4096.0;tcp://{address}:{port}",
        "OMPI_COMM_WORLD_SIZE": count,
        "OMPI_COMM_WORLD_RANK": number,
        "OMPI_COMM_WORLD_LOCAL_SIZE": str(task.procs),
        "OMPI_COMM_WORLD_LOCAL_RANK": str(rank.local),
    }


def _ray(task: Task, rank: Rank, places: Sequence[Place]) -> dict[str, str]:
    return {"RAY_ADDRESS": f"{places[0].address}:{ray.port(task, places)}"}


def whole_environment(
    task: Task,
    rank: Rank,
    places: Sequence[Place],
    paths: Mapping[str, str],
    of_node: Mapping[str, str],
) -> dict[str, str]:
    """All that a rank finds: the clean base, what its node says (threads, GPUs, networks, attempt),
    the platform's variables, and over them the user's own with their references filled in. Who
    names a tracking server of their own gets no token of ours to show there."""
    theirs = "MLFLOW_TRACKING_URI" in task.variables
    ours = {k: v for k, v in of_node.items() if not (theirs and k.startswith("MLFLOW_"))}
    variables = dict(task.base) | environment(task, rank, places, paths) | ours
    variables |= {name: fill(value, paths) for name, value in task.variables.items()}
    own = any(source.streamed for source in task.inputs) or "MLFLOW_TRACKING_URI" in ours
    if own and any(_PROXY.fullmatch(name) for name in variables):
        # No proxy leads to the node itself.
        past = variables.get("no_proxy") or variables.get("NO_PROXY") or ""
        if past.strip() != "*":
            past = f"{past},127.0.0.1".lstrip(",")
            variables |= {"no_proxy": past, "NO_PROXY": past}
    return variables


def of_node(task: Task, node: int, cpus: int, gpus: Sequence[str]) -> dict[str, str]:
    """What a node's size makes of it: threads, GPUs, and SageMaker's counts of both.

    OMP_NUM_THREADS so that the ranks of a node share its CPUs instead of fighting for them; a rank
    that has the node to itself gets them all. torchrun sets 1 whatever the machine.
    """
    return {
        "OMP_NUM_THREADS": str(max(1, cpus // max(1, len(ranks_of(task, node))))),
        "CUDA_VISIBLE_DEVICES": ",".join(gpus),
        "SM_NUM_CPUS": str(cpus),
        "SM_NUM_GPUS": str(len(gpus)),
    }


def of_attempt(
    task: Task,
    attempt: int,
    go: Mapping[str, Any],
    end: float | None,
    grace: float,
    folder: str,
) -> dict[str, str]:
    """What is of this attempt alone: ``go`` is the order it began by, ``end`` when the cluster's
    own time for it is over, ``grace`` the seconds between SIGTERM and SIGKILL."""
    limit = None if task.timeout is None else go["started"] + task.timeout
    variables = {
        "ALLRANKS_ATTEMPT": str(attempt),
        "ALLRANKS_PREVIOUS_REASON": str(go.get("previous") or task.previous),
        "ALLRANKS_CONTINUES": task.continues,
        "ALLRANKS_GRACE": f"{grace:g}",
        "ALLRANKS_HOSTFILE": f"{folder}/{HOSTFILE}",
        "ALLRANKS_DEADLINE_FILE": f"{folder}/{DEADLINE}",
        "ALLRANKS_METRICS_FILE": f"{folder}/{LOGGED}",
    }
    if ends := [moment for moment in (limit, end) if moment is not None]:
        variables["ALLRANKS_DEADLINE"] = str(min(ends))
    return variables


def hostfile(task: Task, places: Sequence[Place]) -> str:
    """One line a node, as DeepSpeed's launcher and others read it."""
    return "".join(f"{place.address} slots={task.procs}\n" for place in places)
