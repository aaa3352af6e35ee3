"""`--dry-run`: the plan, as data and as people read it; nothing is started, not even a server."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from allranks import settings
from allranks.cli.output import show
from allranks.cli.submit import rank_variables
from allranks.masking import all_without_credentials, masked, without_credentials
from allranks.plan.distributions import mpi, topology, variables
from allranks.plan.environments import container
from allranks.plan.environments.activation import activated
from allranks.plan.plan import InputTask, Place, Plan, Task, pack
from allranks.sdk.submit.submission import prepare
from allranks.server.assets.read_only_home import clusters, datastores, environments
from allranks.server.submission.submit import Submission, plan
from allranks.spec.shell.expressions import fill_shell


def dry_run(
    spec: Mapping[str, Any],
    base: Path,
    *,
    in_place: bool = False,
    json: bool,
    allow_large: bool = False,
) -> int:
    """Print what would happen. Raises what submitting would raise."""
    submission, _ = prepare(spec, base, in_place=in_place, allow_large=allow_large)
    home = settings.home()
    found = clusters(home)
    made = plan(Submission.load(submission), home, found, environments(home), datastores(home))
    text = found.engine(found.cluster(made)).render(made.gang)
    spec = submission["spec"]
    size = (spec.get("resources") or {}).get("instance_type")
    shown = _shown(made, text, size, spec.get("properties"))
    if json:
        show.as_json(shown)
    else:
        _print(shown)
    return 0


def _lies(each: InputTask) -> str:
    """Where an input will lie, as far as that is known before."""
    if each.streamed:
        return f"<the node's stream of {each.name}>"
    return f"<the node's {each.name}>" if each.cached else each.source or each.uri


def _shown(
    made: Plan, text: str, instance_type: str | None, properties: Mapping[str, str] | None
) -> dict[str, Any]:
    task = made.task
    if task.recipe is not None:
        base = activated(task.base, "<the environment of the attempt>", task.recipe.variables)
        task = task._replace(base=base)
    places = [
        Place(f"<address of node {node}>", f"<host of node {node}>", _ports(task, node), "<its>")
        for node in range(task.nodes)
    ]
    # The placeholders stand where the nodes' own words will: nothing else differs from a real run.
    paths = {"name": task.job}
    for name in ("model_dir", "data_dir", "tensorboard_dir", "state_dir", "instance_state_dir"):
        paths[name] = f"<the node's {name.replace('_', ' ')}>"
    paths |= {f"inputs.{each.name}": each.text or _lies(each) for each in task.inputs}
    paths |= {f"outputs.{o.name}": o.path or f"<the node's {o.name}>" for o in task.outputs}
    files = {name for name in paths if name.startswith("outputs.")}
    files |= {f"inputs.{each.name}" for each in task.inputs if each.text is None}
    command = without_credentials(fill_shell(task.command, paths, files))
    return {
        "name": task.job,
        "digest": made.digest,
        "compute": made.compute,
        "engine": made.engine,
        "rendered": text,
        "gang": {**pack(made.gang), "env": {}},
        "rules": pack(made.rules),
        "notes": list(made.notes),
        "instance_type": instance_type,
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
                "address_source": f"told by node {rank.node}'s agent when it is ready",
                "argv": ["/bin/bash", "-c", command],
                "environment": masked(
                    variables.whole_environment(task, rank, places, paths, _of_node(task)),
                    properties,
                ),
            }
            for rank in topology.ranks(task)
        ],
    }


def _launcher(task: Task) -> list[str] | None:
    """What starts the ranks on node 0, where that is not the agent of each node."""
    if task.distribution != "mpi":
        return None
    found = mpi.Mpi("openmpi", "", "<mpirun of the job's environment>")
    on = mpi.hosts([f"<host of node {node}>" for node in range(task.nodes)])
    return mpi.words(found, on, task.procs, ["<rank>"], root=False)


def _container(task: Task) -> list[str] | None:
    """What starts the container of a node, where its ranks are to run in one."""
    if task.container is None:
        return None
    folder = "<folder of the attempt>"
    given = container.mounts(task, folder, "<agent of allranks>")
    program = ["<agent of allranks>/inside/room.sh", folder]
    held = task.container
    if held.context:
        held = held._replace(image=f"<the image of {held.context}>")
    return container.words(held, "<its name>", given, program, gpus=task.gpus > 0)


def _of_node(task: Task) -> dict[str, str]:
    found = {
        "ALLRANKS_ATTEMPT": "1",
        "ALLRANKS_PREVIOUS_REASON": task.previous,
        "ALLRANKS_CONTINUES": task.continues,
        "ALLRANKS_GRACE": "<seconds>",
        "ALLRANKS_HOSTFILE": "<a file of the node's>",
        "ALLRANKS_DEADLINE_FILE": "<a file of the node's, once it is to end>",
        "CUDA_VISIBLE_DEVICES": "<the GPUs the node is given>" if task.gpus else "",
        "OMP_NUM_THREADS": "<the node's CPUs, shared among its ranks>",
        "SM_NUM_CPUS": "<the node's CPUs>",
        "SM_NUM_GPUS": str(task.gpus),
    }
    if task.timeout is not None:
        found["ALLRANKS_DEADLINE"] = f"<start + {task.timeout:g} s>"
    return found


def _ports(task: Task, node: int) -> Any:
    count = topology.ports_needed(task, node)
    return tuple(f"<free port {n} of node {node}>" for n in range(count))


def _print(shown: Mapping[str, Any]) -> None:
    gang, task = shown["gang"], shown["task"]
    print(f"job        {shown['name']}  (plan {shown['digest'][:12]})")
    text = shown["rendered"]
    if "\n" in text:
        print(f"compute    {shown['compute']}, of {shown['engine']}, which is sent:\n")
        print(textwrap.indent(text.rstrip(), "    ") + "\n")
    else:
        print(f"engine     {shown['engine']}: {text}")
    needs = {name: gang[name] for name in ("gpus", "cpus", "memory") if gang[name]}
    print(f"nodes      {gang['nodes']}  {needs or ''}".rstrip())
    if shown["instance_type"]:
        print(f"size       {shown['instance_type']}")
    for note in shown["notes"]:
        print(f"note       {note}")
    code = task["in_place"] or (f"snapshot {task['code'][:12]}" if task["code"] else "none")
    print(f"code       {code}")
    if wanted := task["recipe"]:
        print(f"python     {wanted['python'] or 'the one in front'}, in an environment with:")
        for line in (*wanted["requirements"], *wanted["constraints"]):
            print(f"             {line}")
        for note in wanted["notes"]:
            print(f"note       {note}")
    if shown["container"]:
        print(f"container  {shlex.join(shown['container'])}")
    if shown["launcher"]:
        print(f"launcher   {' '.join(shown['launcher'])}")
    print("\naddresses and ports come from each node's agent when it is ready\n")
    for line in rank_variables.lines(shown["ranks"], show.table):
        print(line)
