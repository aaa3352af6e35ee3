"""The cluster that the other tests here run on is what it says: hosts that live and die alone."""

from __future__ import annotations

import pytest

from tests.cluster.conftest import Cluster
from tests.support import until

pytestmark = [pytest.mark.slow, pytest.mark.cluster]


def state(cluster: Cluster, host: str) -> str:
    """The host's state as Slurm has it: idle, down*, idle~ …"""
    return cluster.slurm("sinfo", "-h", "-n", host, "-o", "%T").partition("\n")[0]


def test_hosts_have_names_addresses_and_processes_of_their_own(cluster: Cluster):
    said = cluster.slurm("srun", "-N", "3", "-l", "bash", "-c", "echo $(hostname) $(hostname -I)")
    subnet = f"198.18.{cluster.env['CLUSTER_ID']}"
    wanted = [f"{i}: n{i + 1} {subnet}.{11 + i}" for i in range(3)]
    assert sorted(line.strip() for line in said.splitlines()) == wanted
    assert "slurmctld" not in cluster("exec", "n1", "ps", "-A", "-o", "comm")
    assert "slurmd" in cluster("exec", "n1", "ps", "-A", "-o", "comm")


@pytest.mark.parametrize("how", ["kill-host", "cut"])
def test_a_host_that_is_lost_is_noticed_and_comes_back(cluster: Cluster, how: str):
    cluster(how, "n3")
    until(lambda: state(cluster, "n3").startswith("down"), seconds=40)
    assert state(cluster, "n1") == "idle"
    cluster("heal", "n3")
    until(lambda: state(cluster, "n3") == "idle", seconds=40)
    assert cluster.slurm("srun", "-w", "n3", "hostname") == "n3"


def test_cloud_hosts_are_booted_when_they_are_wanted(cluster: Cluster):
    assert state(cluster, "c1").endswith("~")
    assert cluster.slurm("srun", "-p", "cloud", "-w", "c1", "hostname") == "c1"
