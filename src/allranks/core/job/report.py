"""A plan as people read it: what the engine receives and what each rank gets. Pure.

Placeholders in angle brackets stand for what only a node can know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from allranks.core.distributions import mpi, rank_variables, topology
from allranks.core.environments import container
from allranks.core.environments.activation import activated
from allranks.core.packing import pack
from allranks.core.plan import InputTask, Place, Plan, Task
from allranks.masking import all_without_credentials, masked, without_credentials
from allranks.spec.shell.expressions import fill_shell

if TYPE_CHECKING:
    from allranks.api.jobs import PlanAnswer


def report(
    job: Plan, rendered: str, spec: Mapping[str, Any], ranks: slice = slice(None)
) -> PlanAnswer:
    """The plan as JSON, without secrets. ``rendered`` is what the engine receives."""
    task, properties = job.task, spec.get("properties")
    if task.recipe is not None:
        base = activated(task.base, "<the attempt's environment>", task.recipe.variables)
        task = task._replace(base=base)
    places = [
        Place(f"<address of node {node}>", f"<host of node {node}>", _ports(task, node), "<its>")
        for node in range(task.nodes)
    ]
    # Placeholders replace what the nodes will report; all else is as in a real run.
    paths = {"name": task.job}
    paths |= {f"search_space.{name}": text for name, text in task.parameters.items()}
    for name in ("model_dir", "data_dir", "tensorboard_dir", "state_dir", "instance_state_dir"):
        paths[name] = f"<the node's {name.replace('_', ' ')}>"
    paths |= {f"inputs.{item.name}": _input_text(item) for item in task.inputs}
    paths |= {f"outputs.{o.name}": o.path or f"<the node's {o.name}>" for o in task.outputs}
    files = {name for name in paths if name.startswith("outputs.")}
    files |= {f"inputs.{item.name}" for item in task.inputs if item.text is None}
    command = without_credentials(fill_shell(task.command, paths, files))
    return {
        "name": task.job,
        "digest": job.digest,
        "compute": job.compute,
        "engine": job.engine,
        "rendered": rendered,
        "gang": {**pack(job.gang), "env": {}},
        "rules": pack(job.rules),
        "notes": list(job.notes),
        "instance_type": (spec.get("resources") or {}).get("instance_type"),
        "task": {
            **pack(task),
            "inputs": all_without_credentials(pack(task.inputs)),
            "outputs": all_without_credentials(pack(task.outputs)),
            "recipe": all_without_credentials(pack(task.recipe)),
            "tools": masked(task.tools),
            "base": masked(task.base),
            "variables": masked(task.variables, properties),
        },
        "launcher": _launcher(task),
        "container": _container(task),
        "ranks": [
            {
                "rank": rank.rank,
                "node": rank.node,
                "local_rank": rank.local,
                "role": rank.role,
                "address_source": f"reported by node {rank.node}'s agent when it is ready",
                "argv": ["/bin/bash", "-c", command],
                "environment": masked(
                    rank_variables.whole_environment(
                        task, rank, places, paths, _node_variables(task)
                    ),
                    properties,
                ),
            }
            for rank in topology.ranks(task)[ranks]
        ],
    }


def _launcher(task: Task) -> list[str] | None:
    """The mpirun command that starts the ranks on node 0, if the agents do not start them."""
    if task.distribution != "mpi":
        return None
    launcher = mpi.Mpi("openmpi", "", "<mpirun of the job's environment>")
    hosts = mpi.hosts([f"<host of node {node}>" for node in range(task.nodes)])
    return mpi.words(launcher, hosts, task.procs, ["<rank>"], root=False)


def _container(task: Task) -> list[str] | None:
    """The command that starts a node's container, if its ranks run in one."""
    if task.container is None:
        return None
    folder = "<folder of the attempt>"
    mounts = container.mounts(task, folder, "<agent of allranks>")
    program = ["<agent of allranks>/inside/room.sh", folder]
    image = task.container
    if image.context:
        image = image._replace(image=f"<the image of {image.context}>")
    return container.words(image, "<its name>", mounts, program, gpus=task.gpus > 0)


def _input_text(item: InputTask) -> str:
    if item.text is not None:
        return item.text
    if item.streamed:
        return f"<the node's stream of {item.name}>"
    return f"<the node's {item.name}>" if item.cached else item.source or item.uri


def _node_variables(task: Task) -> dict[str, str]:
    values = {
        "ALLRANKS_ATTEMPT": "1",
        "ALLRANKS_PREVIOUS_REASON": task.previous,
        "ALLRANKS_CONTINUES": task.continues,
        "ALLRANKS_GRACE": "<seconds>",
        "ALLRANKS_HOSTFILE": "<a file of the node>",
        "ALLRANKS_METRICS_FILE": "<a file of the node>",
        "ALLRANKS_DEADLINE_FILE": "<a file of the node, once it has to end>",
        "CUDA_VISIBLE_DEVICES": "<the node's GPUs>" if task.gpus else "",
        "OMP_NUM_THREADS": "<the node's CPUs, shared among its ranks>",
        "SM_NUM_CPUS": "<the node's CPUs>",
        "SM_NUM_GPUS": str(task.gpus),
    }
    if task.timeout is not None:
        values["ALLRANKS_DEADLINE"] = f"<start + {task.timeout:g} s>"
    return values


def _ports(task: Task, node: int) -> Any:
    count = topology.ports_needed(task, node)
    return tuple(f"<free port {n} of node {node}>" for n in range(count))
