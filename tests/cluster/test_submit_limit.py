"""A limit on the jobs that may be queued: learnt by one refusal, kept full, and few requests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.http_client import Client
from tests.cluster.conftest import PATH, Cluster
from tests.cluster.test_accounting import accounted
from tests.support import Allranks, environment, until

__all__ = ["accounted"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

JOBS = int(os.environ.get("ALLRANKS_TEST_QUEUED_JOBS", "16"))
LIMIT = 6
COMMANDS = ("sbatch", "squeue", "scontrol", "sacct", "scancel", "sinfo")


SUBMIT = """
import sys
from allranks import Client, command
for number in range(int(sys.argv[1])):
    Client().jobs.create_or_update(command(command="sleep 3", name=f"j{number}"))
"""


@pytest.fixture
def limited(accounted: Cluster) -> Iterator[Cluster]:
    manager = ("sacctmgr", "--immediate", "modify", "qos", "normal", "set")
    accounted.slurm(*manager, f"MaxSubmitJobsPerUser={LIMIT}")
    yield accounted
    accounted.slurm(*manager, "MaxSubmitJobsPerUser=-1")


def test_a_submit_limit_is_kept_full_with_few_requests(
    limited: Cluster,
    allranks: Allranks,
    tmp_path: Path,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = tmp_path / "requests"
    (tmp_path / "bin").mkdir()
    for name in COMMANDS:  # what the server runs is counted
        program = tmp_path / "bin" / name
        real = shutil.which(name, path=PATH)
        program.write_text(f'#!/bin/sh\necho {name} "$1" >>{log}\nexec {real} "$@"\n')
        program.chmod(0o755)
    monkeypatch.setenv("SLURM_CONF", limited.env["SLURM_CONF"])
    env = {"PATH": f"{tmp_path}/bin:{PATH}", "SLURM_CONF": limited.env["SLURM_CONF"]}
    make = ("compute", "create", "s", "--type", "slurm", "--partition", "main", "--default")
    made = allranks(*make, "--account", "science", env=env)
    assert made.returncode == 0, made.stderr
    began = time.monotonic()
    submit = subprocess.Popen(
        [sys.executable, "-c", SUBMIT, str(JOBS)], env=environment(home) | env
    )
    samples: list[int] = []

    def is_over() -> bool:
        listed = limited.slurm("squeue", "-h", "-o", "%T").splitlines()
        url = json.loads((home / "server.json").read_text())["url"]
        with Client(url, (home / "token").read_text().strip()) as server:
            rows = server.json("GET", "/api/v1/jobs?limit=1000")
        waiting = sum(row["status"] == "NotStarted" for row in rows)
        if waiting:
            samples.append(len(listed))
        assert not any(row["status"] == "Failed" for row in rows)
        return submit.poll() is not None and not waiting and not listed

    until(is_over, 400)
    took = time.monotonic() - began
    requests = log.read_text().splitlines()
    empty = sum(not number for number in samples) / max(1, len(samples))
    print(
        f"{JOBS} jobs: {took:.0f} s, {len(requests)} requests, {empty:.0%} of {len(samples)} "
        f"samples empty, {sum(samples) / max(1, len(samples)):.1f} queued on average"
    )
    print({name: sum(line.startswith(name) for line in requests) for name in COMMANDS})
    assert allranks("server", "stop", "--all", env=env).returncode == 0
    assert len(requests) < 10 * JOBS
    assert empty < 0.25
