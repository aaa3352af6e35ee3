"""Jobs with an image on three hosts of Slurm, each with a podman storage of its own."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import ready
from tests.containers.conftest import IMAGE, Podman, podman, write_program
from tests.support import Allranks, until

__all__ = ["podman"]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.cluster,
    pytest.mark.containers,
    pytest.mark.timeout(240),
]
IN_IMAGE = ("--set", f"environment.image={IMAGE}")


@pytest.fixture
def there(
    podman: Podman,
    cluster: Cluster,
    allranks: Allranks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Allranks]:
    """The command line with `there`, whose hosts have a podman; afterwards they run nothing."""
    ready(cluster)
    # Each host's own, in what only it sees; the image is in a store that all of them may read.
    own = Path(cluster.env["CLUSTER_DIR"], "local")
    store = podman.folder.parent / "root"
    write_program(
        tmp_path, own / "storage", own / "run", f"--storage-opt=additionalimagestore={store}"
    )
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SLURM_CONF", cluster.env["SLURM_CONF"])
    make = ("compute", "create", "there", "--type", "slurm", "--partition", "main")
    done = allranks(*make, "--container", "podman")
    assert done.returncode == 0, done.stderr
    yield allranks
    allranks("server", "stop", "--all")
    until(lambda: not cluster.slurm("squeue", "-h"), seconds=40)
    for host in ("n1", "n2", "n3"):
        assert cluster("exec", host, tmp_path / "podman", "ps", "--all", "--quiet") == ""


def test_ranks_of_three_hosts_meet(there: Allranks, code: Path):
    (code / "meet.py").write_text(
        "import os, socket, time\n"
        "rank, port = os.environ['RANK'], int(os.environ['MASTER_PORT'])\n"
        "where = (os.environ['MASTER_ADDR'], port)\n"
        "if rank == '0':\n"
        "    door = socket.create_server(where)\n"
        "    names = sorted(door.accept()[0].makefile().readline() for _ in range(2))\n"
        "    print(''.join(names).split(), os.environ['FROM_IMAGE'])\n"
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
    done = there("run", "-c", "there", "-n", 3, *IN_IMAGE, "--", "python", "meet.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['n2', 'n3'] yes\n"


def test_a_lost_host_takes_its_container_and_no_other_stays(there: Allranks, cluster: Cluster):
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
