"""Ray has a head or a worker on every node, and the command runs beside the head."""

from __future__ import annotations

import os
import shlex
import shutil

from allranks import folder_trees
from allranks.agent import programs
from allranks.agent.launch.stage import Stage, StartedRanks
from allranks.agent.network import ports
from allranks.agent.processes.ranks import SHELL, Running, Started
from allranks.core.distributions import ray
from allranks.core.distributions.topology import Rank
from allranks.errors import NotFound


def start(stage: Stage, running: Running) -> StartedRanks:
    """Start the head or a worker; on node 0 also the rank, which waits for the others."""
    rank = Rank(0, stage.node, 0)
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": stage.secret(), **stage.env(rank)}
    program = shutil.which("ray", path=env.get("PATH")) if stage.container is None else "ray"
    if program is None:
        hint = "install it there: pip install 'ray[default]'"
        raise NotFound("`ray` not found on the PATH of the job's environment", hint=hint)
    scratch = str(stage.scratch)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    argv = [program, *ray.start(stage.task, stage.node, stage.places, scratch, memory)]
    if stage.node == 0:
        head = ray.HEAD.replace("PORT", str(stage.places[0].ports[1]))
        argv = [SHELL, "-c", head, "ray", *argv]
    ports.release(stage.held)
    node_env = {name: value for name, value in env.items() if name != "RAY_ADDRESS"}
    running.start(stage.helper("Ray node"), argv, stage.cwd, node_env)
    if stage.node == 0:
        wait = shlex.join(["python", programs.path_of("ray_wait.py"), str(stage.task.nodes)])
        command = f"{wait} && exec {SHELL} -c {shlex.quote(stage.command)}"
        running.started[rank.rank] = Started(stage.cwd, env)
        running.start(stage.rank(rank), [SHELL, "-c", command], stage.cwd, env)
    return StartedRanks(running, stage.logs)


def clean(stage: Stage) -> None:
    folder_trees.remove(stage.scratch, ignore_errors=True)
