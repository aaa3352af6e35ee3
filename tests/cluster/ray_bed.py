"""A real Ray of several hosts on this machine, and one that boots and ends its nodes by itself.

Hosts are those of `cluster`: names, addresses and processes of their own. Ray asks for a token, as
it should, and notices a dead node within two seconds instead of thirteen. `ray stop` ends every Ray
on a machine by name and is never called: a host's processes end with the host.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from allranks.engines.ray.dashboard_client import Dashboard
from tests.cluster.conftest import NEEDS, PATH, Cluster
from tests.frameworks.environments import environment
from tests.support import until

HEAD, WORKERS = "n1", ("n2", "n3")
CPUS = 2
# The smallest that Ray takes is 78,643,200 bytes.
OBJECT_STORE = 80_000_000

_QUICKLY = {
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "3",
}


class RayBed(NamedTuple):
    """``options`` are those of a compute that is this Ray; ``temp`` where its nodes keep files."""

    cluster: Cluster
    ray: Path
    temp: Path
    options: dict[str, Any]

    @property
    def dashboard(self) -> Dashboard:
        return Dashboard(self.options["address"], self.options["token_file"])

    def address(self, host: str) -> str:
        last = 1 if host == "ctl" else 10 + int(host.removeprefix("n"))
        return f"198.18.{self.cluster.env['CLUSTER_ID']}.{last}"

    def start(self, host: str, *words: str) -> None:
        """Start Ray on a host; it stays there, as that host's own processes do."""
        folder = self.temp / host
        shutil.rmtree(folder, ignore_errors=True)
        common = [
            f"--node-ip-address={self.address(host)}",
            f"--temp-dir={folder}",
            f"--object-store-memory={OBJECT_STORE}",
            "--disable-usage-stats",
        ]
        self.cluster("exec", host, self.ray, "start", *common, *words)

    def join(self, host: str) -> None:
        self.start(host, f"--address={self.address(HEAD)}:6379", f"--num-cpus={CPUS}")

    def heal(self, host: str) -> None:
        """Boot a host that was killed, and have it join again."""
        self.cluster("heal", host)
        self.join(host)
        until(lambda: len(self.alive()) == 1 + len(WORKERS), 40)

    def alive(self) -> list[str]:
        """Addresses of the nodes that Ray holds alive."""
        rows = self.dashboard.state("/api/v0/nodes?limit=10000")
        return sorted(row["node_ip"] for row in rows if row["state"] == "ALIVE")

    def processes(self, marker: str) -> list[str]:
        """On every host, what carries ``marker`` in its environment."""
        return [
            f"{host} {pid}"
            for host in (HEAD, *WORKERS)
            for pid in self.cluster("exec", host, "grep", "-slF", marker, *self._environs(host),
                                    check=False).split()
        ]  # fmt: skip

    def _environs(self, host: str) -> list[str]:
        pids = self.cluster("exec", host, "ps", "-A", "-o", "pid=", check=False).split()
        return [f"/proc/{pid}/environ" for pid in pids]


def python_with_ray() -> Path:
    """The folder of the environment; skips the test where there cannot be one."""
    missing = [name for name in NEEDS if shutil.which(name, path=PATH) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"a Ray of several hosts needs root and {', '.join(missing or NEEDS)}")
    try:
        return environment("ray")
    except subprocess.CalledProcessError:
        pytest.skip("a Ray of several hosts needs a Python with Ray: ALLRANKS_TEST_ENV_RAY")


@contextmanager
def hosts(state: Path, number: int, path: str = PATH) -> Iterator[RayBed]:
    """Three hosts with nothing on them yet, where programs are found on that ``path``."""
    ray = python_with_ray() / "bin" / "ray"
    # Short: the sockets below it have paths of at most 107 characters.
    temp = Path(tempfile.mkdtemp(prefix="ray-"))
    token = temp / "token"
    token.write_text(secrets.token_urlsafe(24))
    token.chmod(0o600)
    strange = ("SLURM_", "RAY_", "ALLRANKS_", "VIRTUAL_ENV")
    env = {name: value for name, value in os.environ.items() if not name.startswith(strange)}
    env |= {"PATH": path, "CLUSTER_DIR": str(state), "SLURM_CONF": str(state / "etc/slurm.conf")}
    env |= {"CLUSTER_ID": str(number), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    bed = RayBed(Cluster(env | _QUICKLY), ray, temp, {"token_file": str(token)})
    bed.cluster("up", 3)
    try:
        yield bed
    finally:
        bed.cluster("down")
        shutil.rmtree(temp, ignore_errors=True)


@contextmanager
def static(state: Path, number: int, path: str = PATH) -> Iterator[RayBed]:
    """A Ray of three nodes: the head on n1, and two more."""
    with hosts(state, number, path) as bed:
        bed.options["address"] = f"http://{bed.address(HEAD)}:8265"
        bed.start(HEAD, "--head", "--dashboard-host=0.0.0.0", f"--num-cpus={CPUS}")
        for host in WORKERS:
            bed.join(host)
        until(lambda: len(bed.alive()) == 1 + len(WORKERS), 40)
        # Only then does it say that nothing scales it.
        until(lambda: bed.dashboard.json("/api/cluster_status")["data"]["clusterStatus"], 40)
        yield bed


@contextmanager
def autoscaled(state: Path, number: int) -> Iterator[RayBed]:
    """A Ray whose head, on ctl, has no CPUs, and that starts as many as five nodes with one each
    when they are wanted; an idle one ends after six seconds. They all are processes of ctl's."""
    with hosts(state, number) as bed:
        scaling = bed.temp / "autoscaling.json"
        scaling.write_text(json.dumps(_SCALING))
        bed.options["address"] = f"http://{bed.address('ctl')}:8265"
        bed.cluster.env.update(RAY_FAKE_CLUSTER="1", AUTOSCALER_UPDATE_INTERVAL_S="1")
        words = ("--head", "--dashboard-host=0.0.0.0", "--num-cpus=0")
        bed.start("ctl", *words, f"--autoscaling-config={scaling}")
        until(lambda: len(bed.alive()) == 1, 40)
        yield bed


_SCALING: dict[str, Any] = {
    "cluster_name": "scaled",
    "max_workers": 5,
    "upscaling_speed": 5.0,
    "idle_timeout_minutes": 0.1,
    "provider": {
        "type": "fake_multinode",
        "use_node_id_as_ip": True,
        "disable_node_updaters": True,
        "disable_launch_config_check": True,
    },
    "head_node_type": "ray.head.default",
    "available_node_types": {
        "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
        "worker": {
            "resources": {"CPU": 1, "object_store_memory": OBJECT_STORE},
            "node_config": {},
            "min_workers": 0,
            "max_workers": 5,
        },
    },
    **{name: {} for name in ("auth", "docker", "head_node", "worker_nodes", "file_mounts")},
    **{
        name: []
        for name in (
            "cluster_synced_files",
            "rsync_exclude",
            "rsync_filter",
            "initialization_commands",
            "setup_commands",
            "head_setup_commands",
            "worker_setup_commands",
            "head_start_ray_commands",
            "worker_start_ray_commands",
        )
    },
    "file_mounts_sync_continuously": False,
}
