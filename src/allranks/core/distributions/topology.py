"""Who runs where: the ranks of a job, its log files, and the ports its nodes bring. Pure.

What each rank finds in its environment is in ``variables``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from allranks.core.plan import Task

# Those of which each node runs one process of the user's, whatever else is asked for.
ONE_EACH = ("tensorflow", "ray")
# Those whose one process on a node gives all GPUs of it out to others.
GIVES_OUT = ("ray",)
# Those whose ranks are started by a program that the agent starts.
STARTS_RANKS = ("mpi", "ray")


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

    TensorFlow's chief is rank 0; then workers, node by node; then parameter servers and evaluators,
    one a node in turn, so that no worker's number depends on how many of those there are. A Ray
    job has one rank, on the head. With a chief and parameter servers, workers serve the chief and
    never have to end.
    """
    if task.distribution == "ray":
        return [Rank(0, 0, 0)]
    serving = bool(task.chiefs and task.parameter_servers)
    roles = [("chief", 0, index, False) for index in range(task.chiefs)]
    workers = [node for node in range(task.nodes) for _ in range(task.procs)]
    roles += [("worker", node, index, serving) for index, node in enumerate(workers)]
    roles += [("ps", i % task.nodes, i, True) for i in range(task.parameter_servers)]
    roles += [("evaluator", i % task.nodes, i, False) for i in range(task.evaluators)]
    on_node = [0] * task.nodes
    ranks: list[Rank] = []
    for role, node, index, service in roles:
        ranks.append(Rank(len(ranks), node, on_node[node], role, index, service))
        on_node[node] += 1
    return ranks


def ranks_of(task: Task, node: int) -> list[Rank]:
    """The ranks that node runs."""
    return [rank for rank in ranks(task) if rank.node == node]


def ports_needed(task: Task, node: int) -> int:
    """How many free ports the node has to bring. The first of node 0 is the job's own.

    TensorFlow listens on every task. A node that mpirun or DeepSpeed's launcher is to reach listens
    for it on its last one. Node 0 has a second one for Horovod's rendezvous and for Ray's clients.
    """
    if task.distribution == "tensorflow":
        return len(ranks_of(task, node))
    if task.distribution == "mpi":
        return 1
    if task.distribution == "deepspeed":
        return 2 if node == 0 else 1
    if task.distribution in ("horovod", "ray"):
        return 2 if node == 0 else 0
    return 1 if node == 0 else 0


def helper_ports(task: Task, node: int) -> int:
    """How many of those, the last ones, helpers of ours listen on, at the node's own address."""
    if task.distribution in ("mpi", "deepspeed"):
        return 1
    return 1 if task.distribution == "horovod" and node == 0 else 0


def together(task: Task) -> bool:
    """Whether ranks wait for one another, so that none of them may end before the others do."""
    return task.distribution != "none" and not task.evaluators


def log_name(rank: int, world: int) -> str:
    """Azure ML's file name of a rank's output: one process, under ten, or zero-padded."""
    if world == 1:
        return "user_logs/std_log.txt"
    return f"user_logs/std_log_process_{rank:0{len(str(world - 1))}d}.txt"


def world(task: Task) -> int:
    """How many user processes the job has, parameter servers among them."""
    if task.distribution == "ray":
        return 1
    return task.nodes * task.procs + task.chiefs + task.parameter_servers + task.evaluators
