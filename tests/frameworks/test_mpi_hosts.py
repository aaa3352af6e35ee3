"""mpirun starts ranks on another host with our program in place of ssh.

The other host is a namespace with its own host name, which is how MPI tells hosts apart. Nodes of
the local engine share a host name, so only here and on real clusters mpirun starts daemons.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from allranks.agent.launch.find_mpi import find_mpi
from allranks.agent.launch.mpi_ranks import MpiRanks
from allranks.agent.processes.ranks import Process
from allranks.agent.programs import remote_shell
from allranks.core.distributions import mpi
from tests.frameworks.environments import environment

pytestmark = [pytest.mark.frameworks, pytest.mark.slow, pytest.mark.timeout(600)]

PROGRAM = [sys.executable, "-I", "-S", remote_shell.__file__]
OTHER = "elsewhere"
SCRIPT = """
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
here = world.Split_type(MPI.COMM_TYPE_SHARED)
local = os.environ.get("OMPI_COMM_WORLD_LOCAL_RANK", os.environ.get("MPI_LOCALRANKID"))
total, host = world.allreduce(world.rank), socket.gethostname()
print(world.rank, local, here.size, total, host, os.environ["OWN"])
"""


def namespaces() -> bool:
    tried = subprocess.run(["unshare", "--uts", "true"], capture_output=True)
    return tried.returncode == 0


@pytest.mark.parametrize("kind", ["openmpi", "openmpi4", "mpich"])
def test_ranks_on_a_host_of_another_name(tmp_path: Path, kind: str):
    if not namespaces():
        pytest.skip("a namespace with a host name of its own needs root")
    path = f"{environment(kind) / 'bin'}:{os.environ['PATH']}"
    key, here = remote_shell.secret("token", 1), os.uname().nodename
    meeting = tmp_path / "ranks"
    logs = []
    for node in (0, 1):
        hosted = MpiRanks(meeting, node)
        for local in (0, 1):
            logs.append(tmp_path / f"{len(logs)}.log")
            process = Process(f"rank {len(logs) - 1}", logs[-1], len(logs) - 1)
            env = {"PATH": path, "OWN": f"node {node}"}
            command = f"python -c {shlex.quote(SCRIPT)}"
            hosted.expect(process, command, tmp_path, env, mpi.local_variables(local, 2))
    base = {"PATH": path, "ALLRANKS_RANKS": str(meeting), "HOME": str(tmp_path)}
    base |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    with socket.socket() as bound:
        bound.bind(("127.0.0.3", 0))
        serve = shlex.join([*PROGRAM, "serve", str(bound.fileno())])
        door = subprocess.Popen(
            ["unshare", "--uts", "sh", "-c", f"hostname {OTHER}; exec {serve}"],
            pass_fds=[bound.fileno()],
            env={**base, "ALLRANKS_REMOTE_SECRET": key},
        )
        port = bound.getsockname()[1]
    on = mpi.hosts([here, OTHER])
    table, program = tmp_path / "nodes.json", tmp_path / "remote"
    table.write_text(json.dumps({"secret": key, "nodes": {on[1].name: ["127.0.0.3", port]}}))
    program.write_text(f'#!/bin/sh\nexec {shlex.join([*PROGRAM, "ssh", str(table)])} "$@"\n')
    program.chmod(0o700)
    found = find_mpi(base)
    argv = mpi.words(found, on, 2, hosted.program, root=os.geteuid() == 0)
    try:
        done = subprocess.run(
            argv,
            env={**base, **mpi.variables(found, str(program))},
            cwd=tmp_path,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        door.terminate()
        door.wait()
    assert done.returncode == 0, done.stdout + done.stderr
    assert [log.read_text().split(maxsplit=5) for log in logs] == [
        [str(rank), str(rank % 2), "2", "6", (here, OTHER)[rank // 2], f"node {rank // 2}\n"]
        for rank in range(4)
    ]
