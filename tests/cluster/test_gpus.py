"""Jobs that do not say how many GPUs they want, on hosts that Slurm gives two to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest

from tests.cluster.conftest import Cluster, environment_of, missing_for_slurm, number_of
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

SEES = 'echo "sees ${CUDA_VISIBLE_DEVICES:-none}"'


@pytest.fixture(scope="module")
def with_gpus(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Cluster]:
    """One host with two GPUs."""
    if why := missing_for_slurm():
        pytest.skip(why)
    state = tmp_path_factory.mktemp("gpus")
    env = environment_of(state, number_of("gpus", worker_id))
    found = Cluster({**env, "CLUSTER_GPUS": "2"})
    found("up", 1)
    yield found
    found("down")
    shutil.rmtree(state, ignore_errors=True)


@pytest.fixture
def slurm(
    with_gpus: Cluster, allranks: Allranks, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Allranks]:
    monkeypatch.setenv("SLURM_CONF", with_gpus.env["SLURM_CONF"])
    make = ("compute", "create", "s", "--type", "slurm", "--partition", "main", "--default")
    until(lambda: allranks(*make).returncode == 0, 30)
    yield allranks
    allranks("server", "stop", "--all")
    until(lambda: not with_gpus.slurm("squeue", "-h"), seconds=40)


def test_a_rank_gets_a_gpu(slurm: Allranks) -> None:
    one = slurm("run", "--name", "one", "--", "bash", "-c", SEES)
    assert one.returncode == 0, one.stderr
    assert "GPUs: 1 per node, one per process (a node has 2); --gpus 0 for none" in one.stderr
    assert one.stdout == "sees 0\n"
    both = slurm("run", "-p", 3, "--", "bash", "-c", SEES)
    assert "GPUs: 2 per node for 3 processes, all a node has" in both.stderr
    assert both.stdout.count("sees 0,1") == 3
    none = slurm("run", "--gpus", 0, "--", "bash", "-c", SEES)
    assert none.stdout == "sees none\n"
    assert "GPUs" not in none.stderr
    assert json.loads(slurm("job", "show", "one", "--json").stdout)["gpus_per_node"] == 1


def test_a_compute_and_an_instance_type_say_otherwise(slurm: Allranks) -> None:
    size = "resources.instance_type=Standard_NC24rs_v3"
    large = slurm("run", "--set", size, "--", "bash", "-c", SEES)
    assert "Standard_NC24rs_v3 has 4, a node here has 2" in large.stderr
    assert large.stdout == "sees 0,1\n"
    slurm("compute", "update", "s", "--gpus-per-node", 0)
    none = slurm("run", "--", "bash", "-c", SEES)
    assert none.stdout == "sees none\n"
    slurm("compute", "update", "s", "--gpus-per-node", "", "--gres", "gpu:2")
    own = slurm("run", "--", "bash", "-c", SEES)
    assert own.stdout == "sees 0,1\n"
