"""Jobs with an image on three hosts of Slurm and of Ray, each with a podman of its own; and under
apptainer, where this machine has one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import ray_bed
from tests.cluster.conftest import PATH, Cluster, number_of
from tests.cluster.test_slurm import ready
from tests.containers.conftest import (
    APPTAINER,
    IMAGE,
    Podman,
    image_file,
    podman,
    write_program,
)
from tests.support import Allranks, until

__all__ = ["image_file", "podman"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.containers,
    pytest.mark.timeout(800),
]
IN_IMAGE = ("--set", f"environment.image={IMAGE}")
# Ranks of three hosts that greet one another.
MEET = (
    "import os, socket, time\n"
    "rank, port = os.environ['RANK'], int(os.environ['MASTER_PORT'])\n"
    "where = (os.environ['MASTER_ADDR'], port)\n"
    "if rank == '0':\n"
    "    door = socket.create_server(where)\n"
    "    names = [door.accept()[0].makefile().readline().strip() for _ in range(2)]\n"
    "    print(*sorted([*names, socket.gethostname()]), os.environ['FROM_IMAGE'])\n"
    "else:\n"
    "    until = time.time() + 20\n"
    "    while True:\n"
    "        try:\n"
    "            call = socket.create_connection(where)\n"
    "            break\n"
    "        except OSError:\n"
    "            assert time.time() < until\n"
    "            time.sleep(0.05)\n"
    "    call.sendall(f'{socket.gethostname()}\\n'.encode())\n"
)


def write_podman(folder: Path, podman: Podman) -> None:
    """A podman for the hosts of a cluster: each with a storage in what only it sees, and all with
    the image, in a store that they may read."""
    own, store = Path("/dev/shm/podman"), podman.folder.parent / "root"
    more = f"--storage-opt=additionalimagestore={store}"
    write_program(folder, own / "storage", own / "run", more)


def nothing_is_left(cluster: Cluster, folder: Path) -> None:
    for host in ("n1", "n2", "n3"):
        assert cluster("exec", host, folder / "podman", "ps", "--all", "--quiet") == ""


@pytest.fixture
def on_slurm(
    podman: Podman,
    cluster: Cluster,
    allranks: Allranks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Allranks]:
    """The command line with `there`, whose hosts have a podman; afterwards they run nothing."""
    ready(cluster)
    write_podman(tmp_path, podman)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    make = ("compute", "create", "there", "--type", "slurm", "--partition", "main")
    done = allranks(*make, "--container", "podman")
    assert done.returncode == 0, done.stderr
    yield allranks
    allranks("server", "stop", "--all")
    until(lambda: not cluster.slurm("squeue", "-h"), seconds=40)
    nothing_is_left(cluster, tmp_path)


@pytest.fixture
def on_ray(
    podman: Podman,
    allranks: Allranks,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    worker_id: str,
) -> Iterator[Allranks]:
    """The same of a Ray: its nodes' programs are those of whoever started it there."""
    state = tmp_path_factory.mktemp("ray")
    write_podman(tmp_path, podman)
    with ray_bed.static(state, number_of("ray", worker_id), f"{tmp_path}:{PATH}") as bed:
        where = ("--address", bed.options["address"], "--token-file", bed.options["token_file"])
        make = ("compute", "create", "there", "--type", "ray", *where)
        done = allranks(*make, "--container", "podman")
        assert done.returncode == 0, done.stderr
        yield allranks
        allranks("server", "stop", "--all")
        nothing_is_left(bed.cluster, tmp_path)


@pytest.mark.parametrize("on", ["on_slurm", pytest.param("on_ray", marks=pytest.mark.ray)])
def test_ranks_of_three_hosts_meet(on: str, request: pytest.FixtureRequest, code: Path):
    there: Allranks = request.getfixturevalue(on)
    (code / "meet.py").write_text(MEET)
    done = there("run", "-c", "there", "-n", 3, *IN_IMAGE, "--", "python", "meet.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "n1 n2 n3 yes\n"


def test_ranks_of_three_hosts_meet_under_apptainer(
    image_file: Path,
    cluster: Cluster,
    allranks: Allranks,
    tmp_path: Path,
    code: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    ready(cluster)
    settings = " ".join(f"{name}={value}" for name, value in APPTAINER.items())
    program = tmp_path / "apptainer"
    program.write_text(f'#!/bin/sh\n{settings} exec {shutil.which("apptainer")} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    make = ("compute", "create", "there", "--type", "slurm", "--partition", "main")
    done = allranks(*make, "--container", "apptainer")
    assert done.returncode == 0, done.stderr
    (code / "meet.py").write_text(MEET)
    words = ("run", "-c", "there", "-n", 3, "--image", image_file, "--", "python", "meet.py")
    done = allranks(*words)
    assert (done.returncode, done.stdout) == (0, "n1 n2 n3 yes\n"), done.stderr


def test_a_lost_host_takes_its_container_and_no_other_stays(on_slurm: Allranks, cluster: Cluster):
    there = on_slurm
    line = "echo up $ALLRANKS_ATTEMPT; [ $ALLRANKS_ATTEMPT = 2 ] || sleep 200"
    words = ("--max-attempts", 2, *IN_IMAGE, "--", "bash", "-c", line)
    done = there("run", "--detach", "--name", "moves", "-c", "there", "-n", 2, *words)
    assert done.returncode == 0, done.stderr
    until(lambda: there("job", "logs", "moves").stdout.count("up 1") == 2, 30)
    cluster("kill-host", "n2")
    try:
        there("job", "wait", "moves", "--timeout", 90, timeout=100)
        job = json.loads(there("job", "show", "moves", "--json").stdout)
        assert (job["status"], job["attempts"]) == ("Completed", 2)
    finally:
        cluster("heal", "n2")
    ready(cluster)
