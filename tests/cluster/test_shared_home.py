"""A host of a Slurm cluster that does not see the server's home: an empty disk lies over it."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import ended, slurm  # noqa: F401 (a fixture)
from tests.support import Allranks

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]


@pytest.fixture
def blind(slurm: Allranks, cluster: Cluster, home: Path) -> Iterator[Allranks]:  # noqa: F811
    """The command line, in a cluster whose n2 has an empty disk at the path of the home."""
    cluster("exec", "n2", "mount", "-t", "tmpfs", "none", home)
    yield slurm
    cluster("exec", "n2", "umount", home)


def test_the_host_is_named_and_its_outputs_are_not_lost_in_silence(blind: Allranks, home: Path):
    script = "echo $RANK > outputs/$RANK"
    done = blind("run", "--name", "j", "-n", 3, "--", "bash", "-c", script, timeout=120)
    assert done.returncode == 1, done.stdout
    job = ended(blind, "j")
    assert (job["status"], job["error"]["reason"]) == ("Failed", "SETUP_FAILED")
    assert job["error"]["node"] == 1
    message = "node 1 on n2 does not see the server's ALLRANKS_HOME (no such file or directory)"
    assert message in job["error"]["message"]
    assert f"mount the disk with {home} on n2" in done.stderr
    alone = ("run", "--set", "resources.properties.slurm.extra=--exclude=n2", "--", "true")
    assert blind(*alone, timeout=120).returncode == 0, "the others see it"


def test_doctor_tells_which_host(blind: Allranks, tmp_path: Path):
    file = tmp_path / "job.yml"
    file.write_text("command: 'true'\nresources: {instance_count: 3}\n")
    done = blind("doctor", "--job", file, "--timeout", 60, "--json", timeout=120)
    found = json.loads(done.stdout)
    assert "node 1 on n2 does not see the server's ALLRANKS_HOME" in json.dumps(found)
    assert done.returncode == 1
