"""What the ranks of this node run in: a virtual environment, a container, their variables."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from allranks.agent.channel.channel_opener import ChannelOpener
from allranks.agent.environments import current_python, installed_frameworks
from allranks.agent.launch import mlflow_address, tracker_variables
from allranks.agent.launch.stage import Stage
from allranks.agent.launch.start_ranks import with_sitecustomize
from allranks.agent.lifecycle.agent_calls import AgentCalls
from allranks.agent.lifecycle.parts import Part, Run
from allranks.agent.lifecycle.prepare import command_of
from allranks.agent.processes import guests
from allranks.agent.transport.identity import networks
from allranks.core.distributions import rank_variables, topology
from allranks.core.distributions.topology import Rank
from allranks.core.environments import warm_start
from allranks.core.environments.activation import is_made_for
from allranks.core.job import code_packages
from allranks.core.lifecycle.phases import Phase
from allranks.core.packing import unpack
from allranks.core.plan import Place

if TYPE_CHECKING:
    from allranks.agent.environments.job_environment import Prepared
    from allranks.api.agents import Assignment

# In the commands whose ranks give one another work, and have to know one another for that.
_PARALLEL_STEP = "allranks_parallel_step"


class Environment(Part):
    """The virtual environment of the ranks, if they get one of their own."""

    phase = Phase.ENVIRONMENT

    def begin(self, run: Run) -> None:
        if run.task.container is not None:
            return
        wheels = (run.work.imports or run.folder).with_name(code_packages.WHEELS)
        run.task = task = current_python.for_this_node(run.task, wheels)
        run.python = current_python.interpreter({**task.base, **task.variables})
        if not is_made_for(task):
            return
        from allranks.agent.environments import job_environment  # lazy: few jobs need one

        calls = self._calls
        prepared = job_environment.prepare(
            task, calls.where.node, run.folder, calls.or_stop, calls.doing
        )
        _use(run, prepared)
        if prepared.packages is not None:
            env = {**prepared.base, **prepared.variables}
            run.python = current_python.interpreter(env, prepared.packages)


class Container(Part):
    """The container in which the ranks run, if the job has one."""

    phase = Phase.IMAGE

    def __init__(self, calls: AgentCalls, channels: ChannelOpener) -> None:
        self._calls, self._channels = calls, channels

    def begin(self, run: Run) -> None:
        if run.task.container is None:
            return
        from allranks.agent.environments import image_environments  # lazy: few jobs have one

        calls, node = self._calls, self._calls.where.node
        gang = os.environ.get("ALLRANKS_GANG", run.task.job)
        gang = os.environ.get(guests.NAME, gang)  # its host's container has the gang's name
        name = f"allranks-{gang}-{node}-{run.number}"
        run.container, prepared = image_environments.open_container(
            run.task, node, name, run.folder, calls.or_stop, calls.doing
        )
        run.closing.callback(run.container.close)
        # Before it: what helpers started in the container ends with them.
        run.closing.callback(self._channels.leave)
        _use(run, prepared)
        self._channels.container, self._channels.waits_for_container = run.container, False


def _use(run: Run, prepared: Prepared) -> None:
    run.task = run.task._replace(base=prepared.base, variables=prepared.variables)
    run.tensorflow = prepared.tensorflow


class WarmStart(Part):
    """A server that has imported the modules of ``warm``, if the job names any."""

    phase = Phase.ENVIRONMENT

    def begin(self, run: Run) -> None:
        if not run.task.warm:
            return
        from allranks.agent.launch import warm_ranks  # lazy: few jobs start warm

        # Addresses and ports are not known yet; what modules read while they are imported is.
        task, calls = run.task, self._calls
        every = range(task.nodes)
        ports = (0,) * max(topology.ports_needed(task, node) for node in every)
        places = (run.place._replace(ports=ports),) * len(every)
        go: Assignment = {"do": "go", "started": 0.0}
        rank = Rank(0, calls.where.node, 0)
        env = with_sitecustomize(_variables(rank, run, calls, places, {}, go))
        try:
            where = warm_ranks.Where(calls.where.folder, run.folder, run.work.folder)
            command = command_of(task, run.work)
            run.warm = warm_ranks.prepare(task, command, env, where, calls.or_stop, calls.doing)
            run.closing.callback(run.warm.close)
        except warm_start.Cold as why:
            calls.cold(str(why))


def stage(run: Run, go: Assignment, calls: AgentCalls, mlflow: Mapping[str, str] | None) -> Stage:
    """Everything that starting the ranks of a prepared run needs, now that ``go`` says where all
    nodes are."""

    def secret() -> str:
        """The same on all nodes of this attempt."""
        from allranks.agent.programs import remote_shell  # lazy: OpenSSH, and few jobs need it

        return remote_shell.secret(calls.where.token, run.number)

    places = tuple(unpack(Place, fields) for fields in go["places"])
    network = networks(calls.where.address, places)
    network |= mlflow_address.variables(calls.where, mlflow)
    if _PARALLEL_STEP in run.task.command:
        network["ALLRANKS_STEP_SECRET"] = secret()
    return Stage(
        task=run.task,
        node=calls.where.node,
        folder=run.folder,
        cwd=run.work.folder,
        command=command_of(run.task, run.work),
        places=places,
        held=run.held,
        secret=secret,
        env=lambda rank: _variables(rank, run, calls, places, network, go),
        container=run.container,
        warm=run.warm,
        note=calls.cold,
    )


def _variables(
    rank: Rank,
    run: Run,
    calls: AgentCalls,
    places: Sequence[Place],
    network: Mapping[str, str],
    go: Assignment,
) -> dict[str, str]:
    """The whole environment of a rank."""
    task, where = run.task, calls.where
    gpus = [gpu for gpu in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if gpu]
    of_node = rank_variables.of_node(task, rank.node, where.cpus, gpus)
    of_node |= network
    of_node |= rank_variables.of_attempt(
        task, run.number, go, where.end, calls.clocks.grace, str(run.folder)
    )
    env = rank_variables.whole_environment(task, rank, places, run.work.paths, of_node)
    if task.distribution == "tensorflow" and "TF_CONFIG" not in task.variables:
        own = task.container or is_made_for(task)
        version = run.tensorflow if own else installed_frameworks.tensorflow(env)
        if installed_frameworks.breaks_on_empty_ps(version):
            env = rank_variables.without_empty_ps(env)
    env |= tracker_variables.variables(env, run.work.folder)
    if run.work.imports is not None:
        env["ALLRANKS_IMPORTS"] = str(run.work.imports)
    # Last, so that the user cannot override it: leftovers of a dead gang are found by it.
    env["ALLRANKS_GANG"] = os.environ.get("ALLRANKS_GANG", "")
    return env
