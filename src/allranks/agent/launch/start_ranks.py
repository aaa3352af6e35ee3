"""Starting a node's part of an attempt: its ranks, and the helpers their distribution needs.

Most distributions are variables alone: the ranks are started here. Under MPI it is mpirun that
starts them, on node 0, reaching the others through a helper on each; DeepSpeed's launcher, should
a rank start it, finds such helpers too; Horovod has its rendezvous store on node 0; Ray a head or a
worker on every node. Helpers end with the ranks.
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

from allranks.agent import programs
from allranks.agent.launch.find_mpi import WITHOUT_BLANKS, find_inside, find_mpi
from allranks.agent.launch.mpi_ranks import MpiRanks
from allranks.agent.network import ports
from allranks.agent.processes.ranks import SHELL, Process, Running
from allranks.errors import NotFound
from allranks.plan.distributions import mpi, ray, variables
from allranks.plan.distributions.topology import Rank, ranks_of
from allranks.plan.environments.container import hostname
from allranks.plan.plan import Place, Task

# On PYTHONPATH of every Python of a job.
_INSIDE = str(Path(__file__).absolute().parents[1] / "inside")

if TYPE_CHECKING:
    from allranks.agent.environments.node_container import NodeContainer

# A file of ours run by its path; -I and -S: nothing of the user's environment is imported.
PYTHON = (sys.executable, "-I", "-S")


class Stage(NamedTuple):
    """All that starting needs to know. ``env`` makes a rank's whole environment; ``held`` are the
    ports of this node, still bound; ``secret`` is the attempt's, shared by its nodes; ``room`` is
    where the ranks run, if not on the node itself."""

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

    def rank(self, rank: Rank) -> Process:
        log = self.folder / f"rank-{rank.rank}.log"
        return Process(f"rank {rank.rank}", log, rank.rank, rank.service)

    def helper(self, name: str) -> Process:
        log = f"helper-{name.replace(' ', '-')}.log"
        return Process(f"{name} on node {self.node}", self.folder / log, service=True)


class Launch(NamedTuple):
    """What runs now, and the output of which ranks appears on this node."""

    running: Running
    logs: Mapping[int, Path]
    hosted: MpiRanks | None = None


def start(stage: Stage, running: Running) -> Launch:
    """Start this node's part in ``running``. Raises AllranksError, OSError or ValueError; what was
    started by then is in ``running``."""
    (stage.folder / variables.HOSTFILE).write_text(variables.hostfile(stage.task, stage.places))
    env = stage.env
    stage = stage._replace(env=lambda rank: _told(env(rank), stage.room is not None))
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
    # Let go at the last moment: until here nobody else could take the ports that the ranks will.
    ports.release(stage.held)
    for rank in ranks_of(stage.task, stage.node):
        argv = [SHELL, "-c", _inside_path(stage, stage.command) if more else stage.command]
        running.start(stage.rank(rank), argv, stage.cwd, stage.env(rank) | more)
    return Launch(running, logs)


def _told(env: Mapping[str, str], inside: bool) -> dict[str, str]:
    """The same, and every Python tells where it is when asked; that ``inside`` of a container is
    told so there, where its image may have a PYTHONPATH of its own."""
    if inside:
        return dict(env)
    paths = [_INSIDE, env.get("PYTHONPATH", "")]
    return {**env, "PYTHONPATH": ":".join(filter(None, paths))}


def clean(stage: Stage) -> None:
    """Leave nothing of this node's in /tmp, once nothing of it runs."""
    if stage.task.distribution == "mpi":
        MpiRanks.clean(_of_ranks(stage), stage.node)
    elif stage.task.distribution == "ray":
        shutil.rmtree(_scratch(stage), ignore_errors=True)


def _scratch(stage: Stage) -> Path:
    """A folder that all nodes of the attempt can name: short, because sockets' paths have 107 bytes
    at most, without blanks, and telling nothing of the secret."""
    name = hashlib.sha256(f"scratch {stage.secret()}".encode()).hexdigest()[:16]
    return Path("/tmp", f"allranks-{stage.task.distribution}-{name}")


def _bare(stage: Stage) -> dict[str, str]:
    """The environment of a helper that is not the user's; marked, so that it is found when lost."""
    return {"PATH": os.defpath, "ALLRANKS_GANG": os.environ.get("ALLRANKS_GANG", "")}


# ---------------------------------------------------------------- reaching other nodes


def _serve(stage: Stage, running: Running, env: Mapping[str, str]) -> None:
    """Let the launcher of another node start programs here, with ``env``."""
    env = {**env, "ALLRANKS_REMOTE_SECRET": stage.secret()}
    helper = stage.helper("remote start")
    if stage.room is not None:
        # A descriptor of ours does not reach a container: there the helper binds the port itself.
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
    # Ours: a copy would keep the door open when the helper has closed it.
    stage.held.pop().close()


def _table(stage: Stage, path: Path, names: Mapping[str, int], work: str = "") -> Path:
    """Write down for ``remote`` where the nodes of these names listen."""
    places = {name: stage.places[node] for name, node in names.items()}
    nodes = {name: (place.address, place.ports[-1]) for name, place in places.items()}
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        json.dump({"secret": stage.secret(), "nodes": nodes, "work": work}, file)
    return path


def _program(stage: Stage, path: Path, words: Sequence[str]) -> Path:
    """An executable that runs ``remote`` with these words and its own."""
    line = shlex.join([*_python(stage), programs.path_of("remote_shell.py"), *words])
    path.write_text(f'#!{SHELL}\nexec {line} "$@"\n')
    path.chmod(0o700)
    return path


def _python(stage: Stage) -> tuple[str, ...]:
    """The Python that runs ``remote``: inside a container only the image's own exists."""
    return PYTHON if stage.room is None else ("python3", "-I", "-S")


def _inside_path(stage: Stage, command: str) -> str:
    """The command for bash. Inside a container it puts the stand-ins first on PATH itself: the
    image sets PATH, and nobody outside knows it."""
    if stage.room is None:
        return command
    return f'export PATH={shlex.quote(str(stage.folder / "bin"))}:"$PATH"\n{command}'


def _reachable(stage: Stage, running: Running) -> dict[str, str]:
    """DeepSpeed's launcher and its autotuner reach every node, their own too, by ssh and pdsh: what
    the ranks' environment needs so that they find ours, and the helper that answers them."""
    from allranks.agent.programs import remote_shell  # lazy: OpenSSL, and few jobs need it

    folder = stage.folder / "bin"
    folder.mkdir()
    names = {place.address: node for node, place in enumerate(stage.places)}
    names["localhost"] = stage.node
    env = stage.env(ranks_of(stage.task, stage.node)[0])
    ours = remote_shell.BETWEEN.decode().join((str(stage.cwd), env.get("VIRTUAL_ENV", "")))
    table = _table(stage, stage.folder / "nodes.json", names, ours)
    for name in ("ssh", "pdsh"):
        _program(stage, folder / name, [name, str(table)])
    more = {"ALLRANKS_STAND_INS": str(folder)}
    if stage.room is None:
        more["PATH"] = f"{folder}:{env.get('PATH', os.defpath)}"
    _serve(stage, running, env | more)
    return more


# ---------------------------------------------------------------- MPI


def _mpi(stage: Stage, running: Running, logs: Mapping[int, Path]) -> Launch:
    """Every node writes down what its ranks are to be, where those of its host meet; node 0 starts
    mpirun, the others what mpirun reaches them through."""
    task, mine = stage.task, ranks_of(stage.task, stage.node)
    env = stage.env(mine[0])
    wanted = str(task.options.get("implementation") or "")
    if stage.room is not None:
        folder = _of_ranks(stage)
        found = find_inside(stage.room, folder, stage.node, stage.places, env, wanted)
    else:
        found = find_mpi(env, wanted) if stage.node == 0 else None
    hosted = MpiRanks(_of_ranks(stage), stage.node, stage.room)
    for rank in mine:
        local = mpi.local_variables(rank.local, task.procs)
        hosted.expect(stage.rank(rank), stage.command, stage.cwd, _guarded(stage.env(rank)), local)
    env["ALLRANKS_RANKS"] = str(hosted.folder)
    if stage.room is None:  # what mpirun and its daemons keep for themselves goes with the rest
        env["TMPDIR"] = str(hosted.scratch)
    elif all(place.address.startswith("127.") for place in stage.places[1:]):
        env = {**mpi.LOOPBACK, **env}
    if found is None:
        _serve(stage, running, env)
        return Launch(running, logs, hosted)
    ports.release(stage.held)
    # Containers have names of their own, and so are hosts of their own to MPI.
    names = [place.host for place in stage.places]
    if stage.room is not None and len(names) > 1:
        names = [hostname(n) for n in range(len(names))]
    on = mpi.hosts(names)
    env |= mpi.variables(found, str(_remote_program(stage, hosted.scratch, on)))
    root = os.geteuid() == 0 or stage.room is not None
    if root:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    argv = mpi.words(found, on, task.procs, hosted.program, root)
    # What mpirun itself has to say stands in the first rank's output, where a person looks.
    running.start(Process(os.path.basename(found.path), logs[0]), argv, stage.cwd, env)
    return Launch(running, logs, hosted)


def _guarded(env: Mapping[str, str]) -> dict[str, str]:
    """The same, and a Python that fails ends instead of waiting for the others in MPI_Finalize."""
    return {**env, "ALLRANKS_LEAVING": programs.path_of("mpi_exit.py")}


def _remote_program(stage: Stage, folder: Path, on: Sequence[mpi.Host]) -> Path:
    table = _table(stage, folder / "nodes.json", {host.name: host.node for host in on[1:]})
    program = _program(stage, folder / "remote", ["ssh", str(table)])
    return program if stage.room is None else Path(WITHOUT_BLANKS, folder.name, "remote")


def _of_ranks(stage: Stage) -> Path:
    """Where mpirun's ranks are written down. A container's folder is its node's alone."""
    return _scratch(stage) if stage.room is None else stage.folder / "mpi"


# ---------------------------------------------------------------- Ray


def _ray(stage: Stage, running: Running) -> None:
    rank = Rank(0, stage.node, 0)
    env = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": stage.secret(), **stage.env(rank)}
    program = shutil.which("ray", path=env.get("PATH")) if stage.room is None else "ray"
    if program is None:
        raise NotFound(
            "there is no `ray` on the PATH of the job's environment",
            hint="install it there: pip install 'ray[default]'",
        )
    scratch = str(_scratch(stage))
    argv = [program, *ray.start(stage.task, stage.node, stage.places, scratch, _memory())]
    ports.release(stage.held)
    running.start(stage.helper("Ray node"), argv, stage.cwd, _without(env, "RAY_ADDRESS"))
    if stage.node == 0:
        wait = shlex.join(["python", programs.path_of("ray_wait.py"), str(stage.task.nodes)])
        command = f"{wait} && exec {SHELL} -c {shlex.quote(stage.command)}"
        running.start(stage.rank(rank), [SHELL, "-c", command], stage.cwd, env)


def _memory() -> int:
    """Bytes this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _without(env: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in env.items() if key != name}
