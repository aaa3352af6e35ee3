"""A real Slurm of several hosts on this machine: see the head of `cluster`, which makes it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from allranks import file_locks

PROGRAM = Path(__file__).with_name("cluster")
# Debian keeps its daemons and `ip` where only root's login shells look.
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
NEEDS = ("slurmctld", "slurmd", "munged", "ip", "nsenter")


class Cluster(NamedTuple):
    """``env`` is what commands of Slurm's need, from this machine as its login node."""

    env: dict[str, str]

    def __call__(self, *words: object, check: bool = True) -> str:
        """Run a command of the cluster's own (`kill-host n1`, `exec n2 hostname`); its output."""
        return self._run([str(PROGRAM), *map(str, words)], check)

    def slurm(self, *words: object, check: bool = True) -> str:
        """Run one of Slurm's; its output, blanks at the ends taken off."""
        return self._run([str(word) for word in words], check)

    def _run(self, words: Sequence[str], check: bool) -> str:
        done = subprocess.run(
            words,
            env=self.env,
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=240,
        )
        assert done.returncode == 0 or not check, done.stdout + done.stderr
        return done.stdout.strip()


# Each worker of a parallel run has clusters of its own, one of each; 0 to 9 are left to people.
KINDS = ("slurm", "accounted", "ray", "scaled", "gpus")


# The numbers that this process has taken, by kind, as long as it lives.
_TAKEN: dict[str, int] = {}


def number_of(kind: str, worker: str) -> int:
    """The cluster's number: no two that may be up at once on this machine have the same."""
    digits = worker.removeprefix("gw")
    first = int(digits) if digits.isdigit() else 0
    for number in range(first, first + 10 if kind not in _TAKEN else first):
        taken = 10 * (1 + KINDS.index(kind)) + number % 10
        if file_locks.take(Path(tempfile.gettempdir(), f"allranks-cluster-{taken}.lock")):
            _TAKEN[kind] = taken
            break
    return _TAKEN[kind]


def environment_of(state: Path, number: int) -> dict[str, str]:
    """For the commands of the cluster of that number."""
    # Nothing of a test's own: daemons would carry it for the whole session.
    ours = ("SLURM_", "ALLRANKS_")
    env = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    conf = str(state / "etc/slurm.conf")
    more = {"CLUSTER_DIR": str(state), "SLURM_CONF": conf, "CLUSTER_ID": str(number)}
    return {**env, "PATH": PATH, **more}


def missing_for_slurm() -> str:
    """What keeps this machine from a Slurm of several hosts; empty: nothing."""
    missing = [name for name in NEEDS if shutil.which(name, path=PATH) is None]
    needs = f"a Slurm of several hosts needs root and {', '.join(missing or NEEDS)}"
    return needs if os.geteuid() != 0 or missing else ""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Iterator[Cluster]:
    """Three hosts that are up, and two that Slurm boots when they are wanted."""
    if why := missing_for_slurm():
        pytest.skip(why)
    state = tmp_path_factory.mktemp("cluster")
    found = Cluster(environment_of(state, number_of("slurm", worker_id)))
    found("up", 3)
    yield found
    found("down")
