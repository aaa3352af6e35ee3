"""Start a node's part of an attempt: its ranks, and the helpers that their distribution needs.

Most distributions need only variables, and the ranks are started here. Each of the others has a
module in this folder. Helpers end with the ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from allranks.agent.launch import deepspeed, horovod, mpi, pipes, ray
from allranks.agent.launch.remote_start import STAND_INS, with_stand_ins
from allranks.agent.launch.stage import Stage, StartedRanks
from allranks.agent.network import ports
from allranks.agent.processes.hold import FOLDER
from allranks.agent.processes.ranks import SHELL, Running, Started
from allranks.core.distributions import rank_variables
from allranks.core.distributions.topology import Rank, ranks_of
from allranks.core.environments.warm_start import Cold

# This folder is on PYTHONPATH of every Python of a job, for its sitecustomize.
_INSIDE = str(Path(__file__).absolute().parents[1] / "inside")
# Distributions whose launcher starts the ranks.
_LAUNCHERS: Mapping[str, Callable[[Stage, Running], StartedRanks]] = {
    "mpi": mpi.start,
    "ray": ray.start,
}
# Distributions that need a helper; it returns more variables for the ranks.
_HELPERS: Mapping[str, Callable[[Stage, Running], dict[str, str]]] = {
    "deepspeed": deepspeed.start,
    "horovod": horovod.start,
}
_CLEAN_UPS: Mapping[str, Callable[[Stage], None]] = {"mpi": mpi.clean, "ray": ray.clean}


def start(stage: Stage, running: Running) -> StartedRanks:
    """Start this node's part. Raises AllranksError, OSError or ValueError; processes started before
    the error are in ``running``."""
    (stage.folder / rank_variables.HOSTFILE).write_text(
        rank_variables.hostfile(stage.task, stage.places)
    )
    env = stage.env
    stage = stage._replace(
        env=lambda rank: {"AZUREML_CR_EXECUTION_WORKING_DIR_PATH": str(stage.cwd), **env(rank)}
    )
    if stage.task.on_failure is not None:
        unheld, folder = stage.env, stage.folder / FOLDER
        stage = stage._replace(
            env=lambda rank: {**unheld(rank), "ALLRANKS_HOLD": f"{rank.rank}:{folder}"}
        )
    if stage.container is None:  # a container sets it inside, where the image may have a PYTHONPATH
        bare = stage.env
        stage = stage._replace(env=lambda rank: with_sitecustomize(bare(rank)))
    distribution = stage.task.distribution
    if distribution in _LAUNCHERS:
        return _LAUNCHERS[distribution](stage, running)
    more = _HELPERS[distribution](stage, running) if distribution in _HELPERS else {}
    # At the last moment, so that no other process takes the ranks' ports.
    ports.release(stage.held)
    warm = 0
    for rank in ranks_of(stage.task, stage.node):
        warm += _start_rank(stage, running, rank, more)
    return StartedRanks(running, stage.logs, warm=warm)


def clean(stage: Stage) -> None:
    """Remove this node's files from /tmp, after its processes have ended."""
    if stage.task.distribution in _CLEAN_UPS:
        _CLEAN_UPS[stage.task.distribution](stage)


def _start_rank(stage: Stage, running: Running, rank: Rank, more: Mapping[str, str]) -> bool:
    """Start a rank with ``more`` variables. Return whether it started warm."""
    env: Mapping[str, str] = {**stage.env(rank), **more}
    process = stage.rank(rank)
    running.started[rank.rank] = Started(stage.cwd, env)
    if stage.warm is not None:
        try:
            stage.warm.start(running, process, stage.command, stage.cwd, env)
            return True
        except Cold as why:
            stage.note(str(why))
    command = with_stand_ins(stage, stage.command) if STAND_INS in more else stage.command
    env = pipes.with_exit_codes(process.log, command, env)
    running.start(process, [SHELL, "-c", command], stage.cwd, env)
    return False


def with_sitecustomize(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which every Python finds our `sitecustomize`."""
    paths = [_INSIDE, env.get("PYTHONPATH", "")]
    return {**env, "PYTHONPATH": ":".join(filter(None, paths))}
