"""Start a node's part of an attempt: its ranks, and the helpers that their distribution needs.

Most distributions need only variables, and the ranks are started here. With MPI, mpirun on node 0
starts the ranks, through a helper on each other node. DeepSpeed's launcher, if a rank starts it,
uses the same helpers. Horovod needs a rendezvous store on node 0, Ray a head or a worker on every
node. Helpers end with the ranks.
"""

from __future__ import annotations

import hashlib
import json
import os
import shlex
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from allranks import folder_trees
from allranks.agent import programs
from allranks.agent.launch.find_mpi import WITHOUT_BLANKS, find_inside, find_mpi
from allranks.agent.launch.mpi_ranks import MpiRanks
from allranks.agent.network import ports
from allranks.agent.processes.ranks import SHELL, Process, Running
from allranks.errors import NotFound
from allranks.plan.distributions import mpi, ray, variables
from allranks.plan.distributions.topology import Rank, ranks_of
from allranks.plan.environments.container import hostname
from allranks.plan.environments.warm_start import Cold
from allranks.plan.plan import Place, Task

# This folder is on PYTHONPATH of every Python of a job, for its sitecustomize.
_INSIDE = str(Path(__file__).absolute().parents[1] / "inside")

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer
    from allranks.agent.launch.warm_ranks import WarmRanks

# Runs programs of this package; with -I and -S they import nothing of the user's environment.
PYTHON = (sys.executable, "-I", "-S")


class Stage(NamedTuple):
    """The input of ``start``. ``env`` returns a rank's whole environment. ``held`` are the sockets
    that reserve this node's ports. ``secret`` returns the secret that the attempt's nodes share.
    ``room`` is the container in which the ranks run, if any. ``warm`` starts ranks that find their
    modules imported; ``note`` records why a rank cannot start like that."""

    task: Task
    node: int
    folder: Path
    cwd: Path
    command: str
    places: Sequence[Place]
    held: list[socket.socket]
    secret: Callable[[], str]
    env: Callable[[Rank], dict[str, str]]
    room: NodeContainer | None = None
    warm: WarmRanks | None = None
    note: Callable[[str], None] = lambda why: None

    def rank(self, rank: Rank) -> Process:
        log = self.folder / f"rank-{rank.rank}.log"
        return Process(f"rank {rank.rank}", log, rank.rank, rank.service)

    def helper(self, name: str) -> Process:
        log = f"helper-{name.replace(' ', '-')}.log"
        return Process(f"{name} on node {self.node}", self.folder / log, service=True)


class Launch(NamedTuple):
    """The running processes, the log of each rank here, the ranks that mpirun starts, and how many
    ranks started warm."""

    running: Running
    logs: Mapping[int, Path]
    hosted: MpiRanks | None = None
    warm: int = 0


def start(stage: Stage, running: Running) -> Launch:
    """Start this node's part. Raises AllranksError, OSError or ValueError; processes started before
    the error are in ``running``."""
    (stage.folder / variables.HOSTFILE).write_text(variables.hostfile(stage.task, stage.places))
    env = stage.env
    stage = stage._replace(
        env=lambda rank: {"AZUREML_CR_EXECUTION_WORKING_DIR_PATH": str(stage.cwd), **env(rank)}
    )
    if stage.room is None:  # a container sets it inside, where the image may have a PYTHONPATH
        bare = stage.env
        stage = stage._replace(env=lambda rank: with_sitecustomize(bare(rank)))
    logs = {rank.rank: stage.rank(rank).log for rank in ranks_of(stage.task, stage.node)}
    if stage.task.distribution == "mpi":
        return _mpi(stage, running, logs)
    if stage.task.distribution == "ray":
        _ray(stage, running)
        return Launch(running, logs)
    if stage.task.distribution == "horovod" and stage.node == 0:
        fd = stage.held[1].fileno()
        argv = [*PYTHON, programs.path_of("horovod_rendezvous.py"), str(fd)]
        running.start(stage.helper("rendezvous store"), argv, stage.folder, _bare(stage), [fd])
    more = _reachable(stage, running) if stage.task.distribution == "deepspeed" else {}
    # At the last moment, so that no other process takes the ranks' ports.
    ports.release(stage.held)
    warm = 0
    for rank in ranks_of(stage.task, stage.node):
        warm += _start_rank(stage, running, stage.rank(rank), stage.env(rank) | more)
    return Launch(running, logs, warm=warm)


def _start_rank(stage: Stage, running: Running, rank: Process, env: Mapping[str, str]) -> bool:
    """Start a rank. Return whether it started warm."""
    if stage.warm is not None:
        try:
            stage.warm.start(running, rank, stage.command, stage.cwd, env)
            return True
        except Cold as why:
            stage.note(str(why))
    needs_path = stage.task.distribution == "deepspeed"
    command = _inside_path(stage, stage.command) if needs_path else stage.command
    running.start(rank, [SHELL, "-c", command], stage.cwd, env)
    return False


def with_sitecustomize(env: Mapping[str, str]) -> dict[str, str]:
    """The environment in which every Python finds our `sitecustomize`."""
    paths = [_INSIDE, env.get("PYTHONPATH", "")]
    return {**env, "PYTHONPATH": ":".join(filter(None, paths))}


def clean(stage: Stage) -> None:
    """Remove this node's files from /tmp, after its processes have ended."""
    if stage.task.distribution == "mpi":
        MpiRanks.clean(_of_ranks(stage), stage.node)
    elif stage.task.distribution == "ray":
        folder_trees.remove(_scratch(stage), ignore_errors=True)


def _scratch(stage: Stage) -> Path:
    """A folder whose path all nodes of the attempt can compute. The path is short, because sockets'
    paths have at most 107 bytes, has no blanks, and does not reveal the secret."""
    name = hashlib.sha256(f"scratch {stage.secret()}".encode()).hexdigest()[:16]
    return Path("/tmp", f"allranks-{stage.task.distribution}-{name}")


def _bare(stage: Stage) -> dict[str, str]:
    """The environment of a helper that needs none of the user's; marked for the clean-up."""
    return {"PATH": os.defpath, "ALLRANKS_GANG": os.environ.get("ALLRANKS_GANG", "")}


# ---------------------------------------------------------------- reaching other nodes


def _serve(stage: Stage, running: Running, env: Mapping[str, str]) -> None:
    """Start the helper through which launchers of other nodes start programs here, with ``env``."""
    env = {**env, "ALLRANKS_REMOTE_SECRET": stage.secret()}
    helper = stage.helper("remote start")
    if stage.room is not None:
        # File descriptors cannot be passed into a container, so the helper binds the port itself.
        held = stage.held.pop()
        address, port = held.getsockname()[:2]
        held.close()
        listen = shlex.join(
            [*_python(stage), programs.path_of("remote_shell.py"), "listen", address, str(port)]
        )
        argv = [SHELL, "-c", _inside_path(stage, f"exec {listen}")]
        running.start(helper, argv, stage.cwd, env)
        return
    fd = stage.held[-1].fileno()
    argv = [*PYTHON, programs.path_of("remote_shell.py"), "serve", str(fd)]
    running.start(helper, argv, stage.cwd, env, [fd])
    # Otherwise our copy would keep the port open after the helper has closed it.
    stage.held.pop().close()


def _table(stage: Stage, path: Path, names: Mapping[str, int], work: str = "") -> Path:
    """Write the addresses of the named nodes for the remote shell."""
    places = {name: stage.places[node] for name, node in names.items()}
    nodes = {name: (place.address, place.ports[-1]) for name, place in places.items()}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump({"secret": stage.secret(), "nodes": nodes, "work": work}, file)
    return path


def _program(stage: Stage, path: Path, arguments: Sequence[str]) -> Path:
    """Write an executable that runs the remote shell with these arguments, then its own."""
    line = shlex.join([*_python(stage), programs.path_of("remote_shell.py"), *arguments])
    path.write_text(f'#!{SHELL}\nexec {line} "$@"\n')
    path.chmod(0o700)
    return path


def _python(stage: Stage) -> tuple[str, ...]:
    """The Python that runs the remote shell: in a container, the image's."""
    return PYTHON if stage.room is None else ("python3", "-I", "-S")


def _inside_path(stage: Stage, command: str) -> str:
    """The command for bash. In a container it prepends our ssh and pdsh to PATH itself, because the
    image sets PATH."""
    if stage.room is None:
        return command
    return f'export PATH={shlex.quote(str(stage.folder / "bin"))}:"$PATH"\n{command}'


def _reachable(stage: Stage, running: Running) -> dict[str, str]:
    """Start the helper for DeepSpeed's launcher and autotuner, which reach every node, including
    their own, by ssh and pdsh. Return the variables with which ranks find our ssh and pdsh."""
    from allranks.agent.programs import remote_shell  # lazy: OpenSSL, and few jobs need it

    folder = stage.folder / "bin"
    folder.mkdir()
    names = {place.address: node for node, place in enumerate(stage.places)}
    names["localhost"] = stage.node
    env = stage.env(ranks_of(stage.task, stage.node)[0])
    folders = remote_shell.BETWEEN.decode().join((str(stage.cwd), env.get("VIRTUAL_ENV", "")))
    table = _table(stage, stage.folder / "nodes.json", names, folders)
    for name in ("ssh", "pdsh"):
        _program(stage, folder / name, [name, str(table)])
    more = {"ALLRANKS_STAND_INS": str(folder)}
    if stage.room is None:
        more["PATH"] = f"{folder}:{env.get('PATH', os.defpath)}"
    _serve(stage, running, env | more)
    return more


# ---------------------------------------------------------------- MPI


def _mpi(stage: Stage, running: Running, logs: Mapping[int, Path]) -> Launch:
    """Every node describes its ranks in files. Node 0 starts mpirun; the others start the helper
    through which mpirun reaches them."""
    task, own_ranks = stage.task, ranks_of(stage.task, stage.node)
    env = stage.env(own_ranks[0])
    requested = str(task.options.get("implementation") or "")
    if stage.room is not None:
        folder = _of_ranks(stage)
        launcher = find_inside(stage.room, folder, stage.node, stage.places, env, requested)
    else:
        launcher = find_mpi(env, requested) if stage.node == 0 else None
    hosted = MpiRanks(_of_ranks(stage), stage.node, stage.room)
    for rank in own_ranks:
        local = mpi.local_variables(rank.local, task.procs)
        # With ALLRANKS_LEAVING a failed Python exits instead of waiting in MPI_Finalize.
        rank_env = {**stage.env(rank), "ALLRANKS_LEAVING": programs.path_of("mpi_exit.py")}
        hosted.expect(stage.rank(rank), stage.command, stage.cwd, rank_env, local)
    env["ALLRANKS_RANKS"] = str(hosted.folder)
    if stage.room is None:  # temporary files of mpirun and its daemons are removed with the rest
        env["TMPDIR"] = str(hosted.scratch)
    elif all(place.address.startswith("127.") for place in stage.places[1:]):
        env = {**mpi.LOOPBACK, **env}
    if launcher is None:
        _serve(stage, running, env)
        return Launch(running, logs, hosted)
    ports.release(stage.held)
    # Each container has its own host name, so MPI treats it as a host.
    names = [place.host for place in stage.places]
    if stage.room is not None and len(names) > 1:
        names = [hostname(n) for n in range(len(names))]
    hosts = mpi.hosts(names)
    env |= mpi.variables(launcher, str(_remote_program(stage, hosted.scratch, hosts)))
    root = os.geteuid() == 0 or stage.room is not None
    if root:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    argv = mpi.words(launcher, hosts, task.procs, hosted.program, root)
    # mpirun's own messages go to the log of rank 0, where users look.
    running.start(Process(os.path.basename(launcher.path), logs[0]), argv, stage.cwd, env)
    return Launch(running, logs, hosted)


def _remote_program(stage: Stage, folder: Path, hosts: Sequence[mpi.Host]) -> Path:
    table = _table(stage, folder / "nodes.json", {host.name: host.node for host in hosts[1:]})
    program = _program(stage, folder / "remote", ["ssh", str(table)])
    return program if stage.room is None else Path(WITHOUT_BLANKS, folder.name, "remote")


def _of_ranks(stage: Stage) -> Path:
    """The folder with the descriptions of mpirun's ranks; in a container, one per node."""
    return _scratch(stage) if stage.room is None else stage.folder / "mpi"


# ---------------------------------------------------------------- Ray


def _ray(stage: Stage, running: Running) -> None:
    rank = Rank(0, stage.node, 0)
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": stage.secret(), **stage.env(rank)}
    program = shutil.which("ray", path=env.get("PATH")) if stage.room is None else "ray"
    if program is None:
        raise NotFound(
            "`ray` not found on the PATH of the job's environment",
            hint="install it there: pip install 'ray[default]'",
        )
    scratch = str(_scratch(stage))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    argv = [program, *ray.start(stage.task, stage.node, stage.places, scratch, memory)]
    ports.release(stage.held)
    node_env = {name: value for name, value in env.items() if name != "RAY_ADDRESS"}
    running.start(stage.helper("Ray node"), argv, stage.cwd, node_env)
    if stage.node == 0:
        wait = shlex.join(["python", programs.path_of("ray_wait.py"), str(stage.task.nodes)])
        command = f"{wait} && exec {SHELL} -c {shlex.quote(stage.command)}"
        running.start(stage.rank(rank), [SHELL, "-c", command], stage.cwd, env)
