"""Real frameworks in containers: of the image is the system, of this machine the packages."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.containers.conftest import IMAGE, Podman, podman
from tests.containers.test_containers import here
from tests.frameworks.environments import environment
from tests.support import Allranks

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
