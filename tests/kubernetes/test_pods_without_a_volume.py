"""Jobs on pods that share no volume with the server: code, inputs and files travel over HTTP."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kubernetes.bed import Kubernetes
from tests.kubernetes.conftest import compute
from tests.kubernetes.test_jobs_on_kubernetes import COUNTS, pods, shown
from tests.support import Allranks, until
from tests.wheels import from_wheels, wheel

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(600)]


@pytest.fixture
def there(
    kubernetes: Kubernetes, namespace: str, allranks: Allranks, home: Path, tmp_path: Path
) -> Iterator[Allranks]:
    """The command line with `there`, a compute of three nodes. Its pods see of this machine only
    what the image's Python needs, and a folder of wheels."""
    wheels = tmp_path / "wheels"
    wheel(wheels, "greets", "2.5")
    options = ["--topology-spread", "kubernetes.io/hostname", "--hold-limit", "3"]
    for folder in ("/usr", sys.prefix, str(wheels)):
        options += ["--volumes", f"host:{folder}={folder}:ro"]
    with compute(kubernetes, namespace, allranks, home, *options) as made:
        yield made


RESTRICTED = """
spec:
  template:
    spec:
      securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: node
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
"""


def test_a_namespace_with_the_restricted_pod_security(
    kubernetes: Kubernetes, namespace: str, allranks: Allranks, home: Path, code: Path
):
    """Its users are numbers without a home folder."""
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    kubernetes.patch(f"api/v1/namespaces/{namespace}", label)
    (code / "train.py").write_text(
        "import os, pathlib\n"
        "rank = os.environ['RANK']\n"
        "pathlib.Path('outputs', f'o{rank}').write_text(rank)\n"
        "pathlib.Path.home().joinpath('.cache').mkdir()\n"
        "print(os.getuid())\n"
    )
    words = ("run", "-c", "there", "-n", 2, "--name")
    with compute(kubernetes, namespace, allranks, home) as there:
        assert there(*words, "refused", "--detach", "--", "python3", "train.py").returncode == 0
        until(lambda: "pods are refused: violates PodSecurity" in str(shown(there, "refused")), 60)
        assert there("job", "cancel", "refused").returncode == 0
        done = there("compute", "update", "there", "--patch", RESTRICTED)
        assert done.returncode == 0, done.stderr
        done = there(*words, "runs", "--", "python3", "train.py", timeout=120)
        assert done.stdout == "1000\n" * 2, done.stderr
    outputs = home / "jobs" / "runs" / "artifacts" / "outputs"
    assert {each.name for each in outputs.iterdir()} == {"o0", "o1"}


def test_files_of_all_pods_are_in_the_record(there: Allranks, home: Path, code: Path):
    (code / "train.py").write_text(
        "import os, pathlib, sys\n"
        "rank = os.environ['RANK']\n"
        "assert not os.path.exists(sys.argv[2]), 'the home is here'\n"
        "pathlib.Path('outputs', f'o{rank}').write_text(rank)\n"
        "pathlib.Path(sys.argv[1], f'm{rank}').write_bytes(bytes(6_000_000))\n"
        "pathlib.Path('left').write_text('in the working folder')\n"
        "print(os.environ['FROM_IMAGE'], os.path.isdir(os.environ['ALLRANKS_STATE_DIR']))\n"
    )
    words = ("run", "--name", "three", "-c", "there", "-n", 3, "-o", "model")
    done = there(*words, "--", "python", "train.py", "${{outputs.model}}", home)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "yes True\n" * 3
    job = shown(there, "three")
    assert len({node["host"] for node in job["node_states"]}) == 3
    assert there("job", "download", "three", "--all", "-p", "got").returncode == 0
    got = {path.name: path.stat().st_size for path in (code / "got").rglob("[om][012]")}
    assert got == {**{f"o{n}": 1 for n in range(3)}, **{f"m{n}": 6_000_000 for n in range(3)}}
    assert len([*(code / "got").rglob("left")]) == 3


def test_an_environment_of_requirements_and_data_of_the_server(
    there: Allranks, home: Path, code: Path, tmp_path: Path
):
    (home / "data" / "set").mkdir(parents=True)
    (home / "data" / "set" / "word").write_text("hello")
    lines = from_wheels(tmp_path / "wheels", "greets==2.5")
    (code / "requirements.txt").write_text("\n".join(lines))
    script = "import greets, sys; print(greets.version, open(sys.argv[1] + '/word').read())"
    words = ("run", "-c", "there", "-n", 2, "-e", "requirements.txt")
    words = (*words, "-i", "d=azureml://datastores/default/paths/set")
    # Settings of pip on this machine may name folders of it.
    none = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": ""}
    done = there(*words, "--", "python", "-c", script, "${{inputs.d}}", timeout=200, env=none)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "2.5 hello\n" * 2


def test_a_gang_that_loses_a_pod_finds_its_state_and_its_outputs(
    there: Allranks, kubernetes: Kubernetes, namespace: str, home: Path
):
    kept = (
        "import os, pathlib\n"
        "mine = pathlib.Path('outputs', 'attempts-' + os.environ['RANK'])\n"
        "mine.write_text(mine.read_text() + 'x' if mine.exists() else 'x')\n"
        "first = pathlib.Path('outputs', 'attempts-0')\n"
        "assert first.exists() or os.environ['ALLRANKS_ATTEMPT'] == '1', 'rank 0 wrote it'\n"
    )
    words = ("run", "--name", "again", "-c", "there", "-n", 2, "--max-attempts", 2, "--detach")
    assert there(*words, "--", "python", "-c", kept + COUNTS, 60).returncode == 0
    until(lambda: "step 20\n" in there("job", "logs", "again", "--rank", 1).stdout, 60)
    # Sent while it runs.
    sent = home / "jobs" / "again" / "artifacts" / "outputs"
    until(lambda: sorted(path.name for path in sent.glob("*")) == ["attempts-0", "attempts-1"])
    name = pods(kubernetes, namespace)[1]["metadata"]["name"]
    kubernetes.delete(f"api/v1/namespaces/{namespace}/pods/{name}")
    until(lambda: shown(there, "again")["launches"] == 2, 90)
    done = there("job", "stream", "again", timeout=120)
    assert shown(there, "again")["status"] == "Completed", done.stderr
    lines = there("job", "logs", "again", "--rank", 0, "--attempt", 2).stdout.splitlines()
    start = int(lines[0].removeprefix("from "))
    assert start > 0
    assert lines[1:] == [f"step {step}" for step in range(start + 1, 61)]
    assert [path.read_text() for path in sorted(sent.iterdir())] == ["xx", "xx"]


def test_a_gang_that_got_some_machines_releases_them_and_uses_up_no_attempt(
    there: Allranks, kubernetes: Kubernetes, namespace: str
):
    path = "api/v1/nodes/node-2"
    kubernetes.patch(path, {"spec": {"unschedulable": True}})
    try:
        words = ("run", "--name", "held", "-c", "there", "-n", 3, "--detach")
        assert there(*words, "--", "echo", "hi").returncode == 0
        until(lambda: len(running(kubernetes, namespace)) == 2, 60)
        # They run, and their agents wait for the third; then the gang releases both machines.
        until(lambda: not pods(kubernetes, namespace), 60)
    finally:
        kubernetes.patch(path, {"spec": {"unschedulable": None}})
    there("job", "stream", "held", timeout=150)
    job = shown(there, "held")
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 1, 1), job["error"]


def running(kubernetes: Kubernetes, namespace: str) -> list[int]:
    found = pods(kubernetes, namespace)
    return [node for node, pod in found.items() if pod["status"]["phase"] == "Running"]


def test_a_server_killed_while_files_are_sent_gets_them_all(there: Allranks, home: Path):
    script = (
        "import os, pathlib, time\n"
        "for n in range(8):\n"
        "    file = pathlib.Path('outputs', f'{n}-' + os.environ['RANK'])\n"
        "    file.write_bytes(bytes([n]) * 20_000_000)\n"
        "    print('wrote', n, flush=True); time.sleep(0.5)\n"
    )
    words = ("run", "--name", "sends", "-c", "there", "-n", 2, "--detach")
    assert there(*words, "--", "python", "-c", script).returncode == 0
    until(lambda: "wrote 5\n" in there("job", "logs", "sends").stdout, 60)
    status = json.loads(there("server", "status", "--json").stdout)
    os.kill(status["pid"], signal.SIGKILL)
    time.sleep(2)
    there("job", "stream", "sends", timeout=150)
    assert shown(there, "sends")["status"] == "Completed", shown(there, "sends")["error"]
    outputs = home / "jobs" / "sends" / "artifacts" / "outputs"
    for rank in range(2):
        for n in range(8):
            assert (outputs / f"{n}-{rank}").read_bytes() == bytes([n]) * 20_000_000
    assert len([*outputs.iterdir()]) == 16


@pytest.mark.torch
def test_torch_trains_over_three_pods_and_saves_its_model(there: Allranks, home: Path):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), float(dist.get_rank()))).sum().backward()
print("gradient", model.module.weight.grad[0, 0].item())
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), "outputs/model.pt")
"""
    python = Path(sys.prefix) / "bin" / "python"
    words = ("run", "--name", "ddp", "-c", "there", "-n", 3, "--", python, "-c", script)
    done = there(*words, timeout=200)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if "gradient" in line] == ["gradient 2.0"] * 3
    assert (home / "jobs" / "ddp" / "artifacts" / "outputs" / "model.pt").stat().st_size > 500
