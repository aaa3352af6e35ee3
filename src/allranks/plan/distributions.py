"""From topology to the variables of each rank: pure, the same on an agent and in a dry run.

Names and meanings are Azure ML's, torchrun's and TensorFlow's own documentation's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from allranks.plan.plan import Place, Task
from allranks.spec.expressions import fill


class Rank(NamedTuple):
    """One user process. A ``service`` (a parameter server) never has to end by itself."""

    rank: int
    node: int
    local: int
    role: str = "worker"
    task_index: int = 0
    service: bool = False


def ranks(task: Task) -> list[Rank]:
    """All ranks of the job, in the order of their numbers.

    Workers come first, node by node; parameter servers after them, one a node in turn, so that no
    worker's number depends on how many there are.
    """
    found = [
        Rank(node * task.procs + local, node, local, task_index=node * task.procs + local)
        for node in range(task.nodes)
        for local in range(task.procs)
    ]
    for index in range(task.parameter_servers):
        node, lap = index % task.nodes, index // task.nodes
        found.append(Rank(len(found), node, task.procs + lap, "ps", index, service=True))
    return found


def ranks_of(task: Task, node: int) -> list[Rank]:
    """The ranks that node runs."""
    return [rank for rank in ranks(task) if rank.node == node]


def ports_needed(task: Task, node: int) -> int:
    """How many free ports the node has to bring: TensorFlow listens on every task, else rank 0."""
    if task.distribution == "tensorflow":
        return len(ranks_of(task, node))
    return 1 if node == 0 else 0


def environment(
    task: Task, rank: Rank, places: Sequence[Place], paths: Mapping[str, str]
) -> dict[str, str]:
    """What the platform sets for a rank; ``paths`` has values for ``inputs.x`` and ``outputs.y``.

    The user's own variables are not in it: they are laid over it and win.
    """
    several = task.nodes * task.procs + task.parameter_servers > 1
    addresses = [place.address for place in places]
    master = f"{addresses[0]}:{places[0].ports[0]}"
    found = {
        "AZUREML_RUN_ID": task.job,
        "AZUREML_ROOT_RUN_ID": task.job,
        "AZUREML_EXPERIMENT_NAME": task.experiment,
        "AZUREML_NODE_COUNT": str(task.nodes),
        "AZUREML_CR_NODE_RANK": str(rank.node),
        "AZUREML_PROCESS_NAME": f"rank_{rank.rank}" if several else "main",
        "AZ_BATCH_NODE_LIST": ";".join(addresses),
        "AZ_BATCH_HOST_LIST": ",".join(addresses),
        "AZ_BATCH_MASTER_NODE": master,
        "ALLRANKS_JOB": task.job,
        "ALLRANKS_NODE_RANK": str(rank.node),
        "ALLRANKS_NODES": json.dumps(
            [{"node": i, "address": p.address, "host": p.host} for i, p in enumerate(places)]
        ),
        # A pipe or file makes Python hold its output back: people want to see it as it happens.
        "PYTHONUNBUFFERED": "1",
    }
    for each in task.inputs:
        prefix = "AZUREML_PARAMETER_" if each.text is not None else "AZURE_ML_INPUT_"
        found[prefix + each.name] = paths[f"inputs.{each.name}"]
    for output in task.outputs:
        found[f"AZURE_ML_OUTPUT_{output.name}"] = paths[f"outputs.{output.name}"]
    if task.distribution == "pytorch":
        found |= _pytorch(task, rank, places)
    elif task.distribution == "tensorflow":
        found |= _tensorflow(task, rank, places)
    return found


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
    # An empty `ps` list is present: Azure's own scripts index it without asking.
    cluster: dict[str, list[str]] = {"worker": [], "ps": []}
    for each in ranks(task):
        cluster[each.role].append(
            f"{places[each.node].address}:{places[each.node].ports[each.local]}"
        )
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


def whole_environment(
    task: Task,
    rank: Rank,
    places: Sequence[Place],
    paths: Mapping[str, str],
    of_node: Mapping[str, str],
) -> dict[str, str]:
    """All that a rank finds: the clean base, what its node says (threads, GPUs, attempt), the
    platform's variables, and over them the user's own with their references filled in."""
    found = dict(task.base) | dict(of_node) | environment(task, rank, places, paths)
    return found | {name: fill(value, paths) for name, value in task.variables.items()}


def threads(cpus: int, local_ranks: int) -> dict[str, str]:
    """OMP_NUM_THREADS so that the ranks of a node share its CPUs instead of fighting for them.

    Left alone for a rank that has a machine to itself. torchrun sets 1 whatever the machine.
    """
    return {"OMP_NUM_THREADS": str(max(1, cpus // local_ranks))}


def log_name(rank: int, world: int) -> str:
    """Azure ML's file name of a rank's output: one process, under ten, or zero-padded."""
    if world == 1:
        return "user_logs/std_log.txt"
    return f"user_logs/std_log_process_{rank:0{len(str(world - 1))}d}.txt"


def world(task: Task) -> int:
    """How many user processes the job has, parameter servers among them."""
    return task.nodes * task.procs + task.parameter_servers
