"""Hosts that share nothing with the server: neither its home, nor the code, nor the Python of who
submits, nor the internet. Each kind of job brings what it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from uv import find_uv_bin

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import show, slurm
from tests.support import Allranks
from tests.wheels import wheel

__all__ = ["slurm"]  # the fixture

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

HOSTS = ("n1", "n2", "n3")
# Where hosts without the home keep theirs; this machine's, unless a disk is put over it.
NODES = "/var/tmp"
COMMAND = ("--", "python", "far.py")
# What no host has: a package of the submitter's Python.
FAR = "import apple, sys; print('apple', apple.version, *sys.argv[1:], flush=True)\n"
SCORE = """\
import apple
def init(): pass
def run(data): return [f"apple {apple.version}"] * (len(data) if isinstance(data, list) else 1)
"""
PIPELINE = """\
type: pipeline
jobs:
  one: {command: "python -c 'import apple; print(1)'", environment: current}
  two: {command: python far.py, code: ., environment: current}
"""
ONLINE = """\
name: blue
endpoint_name: far
code_configuration: {code: ., scoring_script: score.py}
"""
BATCH = """\
$schema: https://azuremlschemas.azureedge.net/latest/modelBatchDeployment.schema.json
name: blue
endpoint_name: many
type: model
model: {path: far.py}
code_configuration: {code: ., scoring_script: score.py}
environment: current
"""
SCHEDULE = """\
name: nightly
trigger: {type: manual}
create_job: {command: python far.py, code: ., name: nightly}
"""


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    """A virtual environment with `apple`."""
    path = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", path], check=True)
    install(path, wheel(tmp_path / "wheels", "apple"))
    return path


def install(venv: Path, *files: object) -> None:
    words = (find_uv_bin(), "pip", "install", "--no-index", "--python", venv / "bin/python", *files)
    subprocess.run(list(map(str, words)), check=True, capture_output=True)


@pytest.fixture
def apart(
    slurm: Allranks,
    cluster: Cluster,
    home: Path,
    code: Path,
    venv: Path,
) -> Iterator[Allranks]:
    """The command line of somebody with that environment."""
    for host in HOSTS:
        for folder in (home, code, venv, NODES):
            cluster("exec", host, "mount", "-t", "tmpfs", "none", folder)
    files = {"far.py": FAR, "score.py": SCORE, "pipeline.yml": PIPELINE, "online.yml": ONLINE}
    files |= {"batch.yml": BATCH, "schedule.yml": SCHEDULE}
    for name, text in files.items():
        (code / name).write_text(text)

    def run(*words: object, **options: Any) -> subprocess.CompletedProcess[str]:
        path = f"{venv}/bin:{os.environ['PATH']}"
        return slurm(*words, env={"VIRTUAL_ENV": str(venv), "PATH": path}, **options)

    yield run
    slurm("server", "stop", "--all")
    for host in HOSTS:
        for folder in (home, code, venv, NODES):
            cluster("exec", host, "umount", folder)


def test_packages_that_change_while_a_job_waits_are_named(
    slurm: Allranks,
    cluster: Cluster,
    code: Path,
    tmp_path: Path,
    venv: Path,
) -> None:
    """On hosts that have the environment, and no index to make the one of before."""
    env = {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{os.environ['PATH']}"}
    wheels = tmp_path / "wheels"
    install(venv, "--find-links", wheels, "--reinstall", "apple")
    install(venv, wheel(wheels, "fig"))
    (code / "far.py").write_text(FAR)
    blocks = cluster.slurm(
        "sbatch", "--parsable", "-N3", "--exclusive", "-o/dev/null", "--wrap=sleep 60"
    )
    slurm("run", "--detach", "--name", "j", *COMMAND, env=env)
    install(venv, wheel(wheels, "apple", "2.0"), wheel(wheels, "pear"))
    subprocess.run([find_uv_bin(), "pip", "uninstall", "-p", venv, "fig"], check=True)
    cluster.slurm("scancel", blocks)
    done = slurm("job", "stream", "j", env=env)
    assert done.returncode == 1
    what = "apple 1.0 is now 2.0; new: pear; gone: fig"
    assert f"its packages changed since you submitted ({what})" in done.stderr
    assert f"{venv}/bin/python is on n1" in done.stderr
    again = slurm("job", "restart", "j", "-C", code, "--stream", env=env, timeout=120)
    assert again.stdout == "apple 2.0\n", again.stderr


def completes(apart: Allranks, *words: object) -> str:
    done = apart(*words, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def newest(apart: Allranks) -> str:
    return str(json.loads(completes(apart, "job", "list", "--json"))[0]["name"])


def run(apart: Allranks) -> None:
    said = completes(apart, "run", "--name", "j", "-n", 2, *COMMAND, "run")
    assert said == "apple 1.0 run\n" * 2


def restart(apart: Allranks) -> None:
    assert completes(apart, "job", "restart", "j", "--fresh", "--stream").count("apple") == 2


def dev(apart: Allranks) -> None:
    completes(apart, "dev", "--name", "d", "--no-jupyter", "--json")
    assert completes(apart, "run", "--in", "d", *COMMAND, "dev") == "apple 1.0 dev\n"
    assert "apple" in completes(apart, "job", "exec", "dev-d", *COMMAND)
    completes(apart, "job", "cancel", "dev-d")


def sweep(apart: Allranks) -> None:
    words = ("--sweep", "x=choice(1, 2)", "--sampler", "grid", "--concurrent", 1)
    words += ("--minimize", "loss", "-m", r"loss=apple 1.0 (\d)")
    completes(apart, "run", "--name", "s", *words, *COMMAND, "${{search_space.x}}")
    assert show(apart, "s")["counts"] == {"Completed": 2}
    assert show(apart, "s_nodes_1")["node_states"], "the trials had the same nodes"


def pipeline(apart: Allranks) -> None:
    completes(apart, "job", "create", "-f", "pipeline.yml", "--name", "p", "--stream")
    assert completes(apart, "job", "logs", "p_two") == "apple 1.0\n"


def schedule(apart: Allranks) -> None:
    completes(apart, "schedule", "create", "-f", "schedule.yml")
    completes(apart, "schedule", "trigger", "nightly")
    completes(apart, "job", "wait", newest(apart))


def batch(apart: Allranks) -> None:
    completes(apart, "endpoint", "create", "many", "--type", "batch")
    completes(apart, "deployment", "create", "-f", "batch.yml", "--set-default")
    completes(apart, "endpoint", "invoke", "many", "--input", ".")
    completes(apart, "job", "wait", newest(apart))


def batch_by_http(apart: Allranks) -> None:
    """Nobody's Python is at hand but that of who made the deployment."""
    home = Path(os.environ["ALLRANKS_HOME"])
    server = json.loads((home / "server.json").read_text())["url"]
    token = (home / "token").read_text().strip()
    data = {"in": {"JobInputType": "UriFolder", "Uri": str(home.parent / "wheels")}}
    request = urllib.request.Request(
        f"{server}/api/v1/batch-endpoints/many/jobs",
        json.dumps({"properties": {"InputData": data}}).encode(),
        {"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as response:
        completes(apart, "job", "wait", json.load(response)["name"])


def online(apart: Allranks) -> None:
    completes(apart, "endpoint", "create", "far")
    completes(apart, "deployment", "create", "-f", "online.yml", "--all-traffic")
    assert "apple 1.0" in completes(apart, "endpoint", "invoke", "far", "--data", "{}")
    completes(apart, "endpoint", "delete", "far", "--yes")


def online_by_the_compute_of_its_endpoint(apart: Allranks) -> None:
    completes(apart, "compute", "set-default", "local")
    completes(apart, "endpoint", "create", "near", "--set", "compute=s")
    words = ("--name", "green", "-e", "near")
    completes(apart, "deployment", "create", "-f", "online.yml", *words, "--all-traffic")
    assert "apple 1.0" in completes(apart, "endpoint", "invoke", "near", "--data", "{}")
    completes(apart, "endpoint", "delete", "near", "--yes")


KINDS = (
    *(run, restart, dev, sweep, pipeline, schedule, batch, batch_by_http, online),
    online_by_the_compute_of_its_endpoint,
)


def test_each_kind_of_job_brings_the_python_of_who_submits(
    apart: Allranks, cluster: Cluster
) -> None:
    failed = {}
    for kind in KINDS:
        try:
            kind(apart)
        except AssertionError as error:
            failed[kind.__name__] = str(error)
        for host in HOSTS:  # the next one finds nothing that this one made there
            cluster("exec", host, "sh", "-c", f"rm -rf {NODES}/*/environments")
    assert not failed, "\n".join(f"{kind}: {text}" for kind, text in failed.items())
