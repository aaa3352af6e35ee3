"""With MPI, mpirun on node 0 starts the ranks, through a helper on each other node."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from allranks.agent import programs
from allranks.agent.launch import remote_start
from allranks.agent.launch.find_mpi import WITHOUT_BLANKS, find_inside, find_mpi
from allranks.agent.launch.mpi_ranks import MpiRanks
from allranks.agent.launch.stage import Stage, StartedRanks
from allranks.agent.network import ports
from allranks.agent.processes.ranks import Process, Running, Started
from allranks.core.distributions import mpi
from allranks.core.distributions.topology import ranks_of
from allranks.core.environments.container import hostname


def start(stage: Stage, running: Running) -> StartedRanks:
    """Every node describes its ranks in files. Node 0 starts mpirun; the others start the helper
    through which mpirun reaches them."""
    task, own_ranks = stage.task, ranks_of(stage.task, stage.node)
    env = stage.env(own_ranks[0])
    requested = str(task.options.get("implementation") or "")
    if stage.container is not None:
        folder = _folder(stage)
        launcher = find_inside(stage.container, folder, stage.node, stage.places, env, requested)
    else:
        launcher = find_mpi(env, requested) if stage.node == 0 else None
    hosted = MpiRanks(_folder(stage), stage.node, stage.container)
    for rank in own_ranks:
        local = mpi.local_variables(rank.local, task.procs)
        # With ALLRANKS_LEAVING a failed Python exits instead of waiting in MPI_Finalize.
        rank_env = {**stage.env(rank), "ALLRANKS_LEAVING": programs.path_of("mpi_exit.py")}
        running.started[rank.rank] = Started(stage.cwd, rank_env)
        hosted.expect(stage.rank(rank), stage.command, stage.cwd, rank_env, local)
    env["ALLRANKS_RANKS"] = str(hosted.folder)
    if stage.container is None:
        # Temporary files of mpirun and its daemons are removed with the rest.
        env["TMPDIR"] = str(hosted.scratch)
    elif all(place.address.startswith("127.") for place in stage.places[1:]):
        env = {**mpi.LOOPBACK, **env}
    if launcher is None:
        remote_start.serve(stage, running, env)
        return StartedRanks(running, stage.logs, hosted)
    ports.release(stage.held)
    # Each container has its own host name, so MPI treats it as a host.
    names = [place.host for place in stage.places]
    if stage.container is not None and len(names) > 1:
        names = [hostname(n) for n in range(len(names))]
    hosts = mpi.hosts(names)
    env |= mpi.variables(launcher, str(_remote_program(stage, hosted.scratch, hosts)))
    root = os.geteuid() == 0 or stage.container is not None
    if root:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    argv = mpi.words(launcher, hosts, task.procs, hosted.program, root)
    # mpirun's own messages go to the log of rank 0, where users look.
    running.start(Process(os.path.basename(launcher.path), stage.logs[0]), argv, stage.cwd, env)
    return StartedRanks(running, stage.logs, hosted)


def clean(stage: Stage) -> None:
    MpiRanks.clean(_folder(stage), stage.node)


def _remote_program(stage: Stage, folder: Path, hosts: Sequence[mpi.Host]) -> Path:
    table = remote_start.write_table(
        stage, folder / "nodes.json", {host.name: host.node for host in hosts[1:]}
    )
    program = remote_start.write_program(stage, folder / "remote", ["ssh", str(table)])
    return program if stage.container is None else Path(WITHOUT_BLANKS, folder.name, "remote")


def _folder(stage: Stage) -> Path:
    """The folder with the descriptions of mpirun's ranks; in a container, one per node."""
    return stage.scratch if stage.container is None else stage.folder / "mpi"
