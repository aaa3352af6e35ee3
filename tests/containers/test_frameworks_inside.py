"""Real frameworks in containers: of the image is the system, of this machine the packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from allranks.sdk.jobs import interrupt
from tests.containers.conftest import IMAGE, Podman, podman
from tests.containers.test_containers import here
from tests.frameworks.environments import environment
from tests.support import Allranks, until

__all__ = ["here", "podman"]
pytestmark = [pytest.mark.slow, pytest.mark.containers, pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).parents[2] / "examples"


def inside(env: Path) -> tuple[str, ...]:
    """An image that has the packages of ``env``, and the libraries of this system."""
    given = [str(env), "/usr/lib", sys.base_prefix]
    mounts = json.dumps([f"-v={p}:{p}:ro" for p in dict.fromkeys(given) if p != "/usr"])
    path = f"environment_variables.PATH={env}/bin:/usr/bin:/bin"
    words = (f"environment={{image: {IMAGE}}}", f"resources.docker_args={mounts}", path)
    return tuple(word for each in words for word in ("--set", each))


@pytest.mark.torch
def test_torch_reduces_over_nodes_and_ranks(here: Allranks, podman: Podman, code: Path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    (code / "reduce.py").write_text(
        "import os, torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "value = torch.ones(1) * dist.get_rank()\n"
        "dist.all_reduce(value)\n"
        "print(int(value), os.environ['FROM_IMAGE'])\n"
        "dist.destroy_process_group()\n"
    )
    words = ("-n", 2, "-p", 2, *inside(Path(sys.prefix)), "--", "python", "reduce.py")
    done = here("run", *words, timeout=300)
    assert (done.returncode, done.stdout) == (0, "6 yes\n" * 4), done.stderr


RANKS = """
import os, signal, socket, sys, time
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank)
print(world.rank, world.size, total, os.environ["FROM_IMAGE"], socket.gethostname(), flush=True)
what = sys.argv[1] if len(sys.argv) > 1 else "end"
if what == "fail" and world.rank == 3:
    sys.exit(7)
if what == "save":
    def save(number, frame):
        print("saved", world.rank, flush=True)
        sys.exit(0)
    signal.signal(signal.SIGTERM, save)
if what != "end":
    print("up", flush=True)
    time.sleep(600)
"""


@pytest.mark.frameworks
@pytest.mark.parametrize("kind", ["openmpi", "openmpi4", "mpich"])
def test_every_mpirun_of_an_image_starts_the_ranks_of_a_node(
    here: Allranks, podman: Podman, code: Path, kind: str
):
    (code / "ranks.py").write_text(RANKS)
    given = ("-d", "mpi", "-p", 2, *inside(environment(kind)))
    done = here("run", *given, "--", "python", "ranks.py", timeout=120)
    said = sorted(line.rpartition(" ")[0] for line in done.stdout.splitlines())
    assert (done.returncode, said) == (0, ["0 2 1 yes", "1 2 1 yes"]), done.stderr + done.stdout
    done = here("run", "-n", 2, *given, "--", "python", "ranks.py", timeout=120)
    assert (done.returncode == 0) == (kind == "openmpi"), done.stderr + done.stdout
    assert kind == "openmpi" or "install Open MPI 5 in the image" in done.stderr


@pytest.mark.frameworks
def test_mpirun_of_the_image_starts_ranks_in_all_containers(
    here: Allranks, podman: Podman, code: Path
):
    (code / "ranks.py").write_text(RANKS)
    given = ("-d", "mpi", "-n", 2, "-p", 2, *inside(environment("openmpi")))
    done = here("run", "--name", "good", *given, "--", "python", "ranks.py", timeout=120)
    said = [f"{r} 4 6 yes allranks-node-{r // 2}" for r in range(4)]
    # Open MPI warns now and then of setpgid, which it calls in parent and child alike.
    ours = sorted(line for line in done.stdout.splitlines() if not line.startswith("["))
    assert (done.returncode, ours) == (0, said), done.stderr + done.stdout
    done = here("run", "--name", "bad", *given, "--", "python", "ranks.py", "fail", timeout=120)
    assert done.returncode == 7, done.stdout + done.stderr
    error = json.loads(here("job", "show", "bad", "--json").stdout)["error"]
    assert (error["rank"], error["node"]) == (3, 1), error
    assert "exited with code 7" in error["message"]


@pytest.mark.frameworks
def test_mpi_ranks_in_containers_save_when_canceled_and_are_killed_alone(
    here: Allranks, podman: Podman, code: Path, home: Path
):
    (code / "ranks.py").write_text(RANKS)
    given = ("-d", "mpi", "-n", 2, "-p", 2, *inside(environment("openmpi")), "--detach")
    here("run", "--name", "one", *given, "--", "python", "ranks.py", "save")
    until(lambda: here("job", "logs", "one").stdout.count("up\n") == 4, 120)
    here("job", "cancel", "one")
    assert here("job", "wait", "one").returncode
    assert here("job", "logs", "one").stdout.count("saved") == 4
    here("run", "--name", "two", *given, "--", "python", "ranks.py", "wait")
    until(lambda: here("job", "logs", "two").stdout.count("up\n") == 4, 120)
    interrupt.kill("two", 2)
    here("job", "wait", "two")
    error = json.loads(here("job", "show", "two", "--json").stdout)["error"]
    assert (error["rank"], error["reason"]) == (2, "RANK_KILLED"), error


def test_mpi_in_an_image_without_a_launcher_is_a_clear_error(here: Allranks, podman: Podman):
    done = here("run", "-d", "mpi", "--set", f"environment={{image: {IMAGE}}}", "--", "true")
    assert done.returncode == 1
    assert "python3" in done.stderr or "mpirun not found on the PATH" in done.stderr, done.stderr


@pytest.mark.frameworks
def test_tensorflow_is_asked_for_its_version(here: Allranks, podman: Podman):
    """Which decides what TF_CONFIG may hold: the wrong one ends the ranks by SIGSEGV."""
    job = EXAMPLES / "tensorflow" / "job.yml"
    words = ("-f", job, "--stream", "--set", "compute=local", *inside(environment("tensorflow")))
    done = here("job", "create", *words, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "worker 0 of" in done.stdout


@pytest.mark.ray
@pytest.mark.frameworks
def test_a_ray_of_the_jobs_own(here: Allranks, podman: Podman):
    job = EXAMPLES / "ray" / "job.yml"
    words = ("-f", job, "--stream", "--set", "compute=local", *inside(environment("ray")))
    done = here("job", "create", *words, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
