"""Jobs by the command line on a real Kubernetes: as on every engine, and what pods add to it."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes.bed import Kubernetes
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(600)]

# Counts in its state folder, a step every 0.2 s, and says from where it went on.
COUNTS = """
import os, pathlib, sys, time
kept = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"], f"step-{os.environ.get('RANK', 0)}")
step = int(kept.read_text()) if kept.exists() else 0
print("from", step, flush=True)
while step < int(sys.argv[1]):
    time.sleep(0.2)
    step += 1
    kept.write_text(str(step))
    print("step", step, flush=True)
"""


def shown(allranks: Allranks, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(allranks("job", "show", name, "--json").stdout)
    return found


def pods(kubernetes: Kubernetes, namespace: str) -> dict[int, dict[str, Any]]:
    index = "batch.kubernetes.io/job-completion-index"
    items = kubernetes.get(f"api/v1/namespaces/{namespace}/pods")["items"]
    return {int(each["metadata"]["annotations"][index]): each for each in items}


@pytest.mark.end_to_end
def test_a_failure_is_told_with_its_node_and_what_it_printed(there: Allranks):
    script = "import os, sys; print('line'); sys.exit(3 if os.environ['RANK'] == '1' else 0)"
    done = there("run", "--name", "fails", "-c", "there", "-n", 3, "--", "python", "-c", script)
    assert done.returncode == 3, done.stderr
    job = shown(there, "fails")
    assert (job["error"]["reason"], job["error"]["rank"]) == ("RANK_EXITED", 1)
    assert there("job", "logs", "fails", "--rank", 1).stdout == "line\n"
    assert len({node["host"] for node in job["node_states"]}) == 3


def test_ranks_have_the_images_environment_and_files_of_the_record(there: Allranks, code: Path):
    (code / "own.txt").write_text("sent")
    script = (
        "import os, pathlib; print(os.environ['FROM_IMAGE'], pathlib.Path('own.txt').read_text());"
        "pathlib.Path('outputs/o.txt').write_text('kept')"
    )
    done = there("run", "--name", "env", "-c", "there", "--", "python3", "-c", script)
    assert done.stdout == "yes sent\n", done.stderr
    assert there("job", "download", "env", "-p", "got").returncode == 0
    assert [path.read_text() for path in (code / "got").rglob("o.txt")] == ["kept"]


def test_a_jobs_own_image_counts_before_the_computes(there: Allranks, code: Path):
    (code / "job.yml").write_text(
        "command: echo hi\ncompute: there\nenvironment: {image: 'localhost/other:2'}\n"
    )
    done = there("job", "create", "-f", "job.yml", "--dry-run")
    assert "image: localhost/other:2" in done.stdout, done.stderr
    job = json.loads(there("job", "create", "-f", "job.yml", "--json").stdout)["name"]
    until(lambda: "Image" in str(shown(there, job)), 60)
    assert there("job", "cancel", job).returncode == 0
    until(lambda: shown(there, job)["status"] == "Canceled", 60)


def test_state_is_found_again_after_a_restart_in_the_same_pods(there: Allranks):
    script = (
        "import os, pathlib, sys\n"
        "first = not list(pathlib.Path(os.environ['ALLRANKS_STATE_DIR']).iterdir())\n"
        f"sys.argv[1:] = ['2' if first else '4']\n{COUNTS}\nsys.exit(first)"
    )
    words = ("--max-attempts", 2, "--", "python", "-c", script)
    done = there("run", "--name", "twice", "-c", "there", *words)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["from 0", "step 1", "step 2", "from 2", "step 3", "step 4"]
    job = shown(there, "twice")
    assert (job["attempts"], job["launches"]) == (2, 1)


@pytest.mark.parametrize("how", ["evicted", "deleted", "no power"])
def test_a_gang_that_loses_a_pod_runs_again_and_goes_on(
    there: Allranks, kubernetes: Kubernetes, namespace: str, how: str
):
    words = ("run", "--name", "again", "-c", "there", "-n", 2, "--max-attempts", 2, "--detach")
    assert there(*words, "--", "python", "-c", COUNTS, 60).returncode == 0
    until(lambda: "step 10\n" in there("job", "logs", "again", "--rank", 1).stdout, 60)
    pod = pods(kubernetes, namespace)[1]
    name, host = pod["metadata"]["name"], pod["spec"]["nodeName"]
    began = time.monotonic()
    if how == "evicted":
        kubernetes.evict(namespace, name)
    elif how == "deleted":
        kubernetes.delete(f"api/v1/namespaces/{namespace}/pods/{name}")
    else:
        kubernetes.nodes("kill", host)
    until(lambda: shown(there, "again")["launches"] == 2, 90)
    until(lambda: shown(there, "again")["status"] == "Running", 90)
    print(f"{how}: running again after {time.monotonic() - began:.1f} s")
    done = there("job", "stream", "again", timeout=120)
    assert shown(there, "again")["status"] == "Completed", done.stderr
    lines = there("job", "logs", "again", "--rank", 0, "--attempt", 2).stdout.splitlines()
    start = int(lines[0].removeprefix("from "))
    # From what was there when the state was last synced; nothing twice and nothing left out.
    assert start > 0
    assert lines[1:] == [f"step {step}" for step in range(start + 1, 61)]


# Two gangs at once would want the same lock.
ALONE = """
import fcntl, os, sys
lock = open(f"{sys.argv[2]}/lock-{os.environ['RANK']}", "w")
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except BlockingIOError:
    sys.exit("there are two gangs")
"""
FAULTS = ("evict", "delete", "kill node", "cut node", "pause", "kill server")


@pytest.mark.heavy
@pytest.mark.parametrize("seed", range(20))
def test_a_fault_at_a_random_moment(
    there: Allranks, home: Path, kubernetes: Kubernetes, namespace: str, seed: int
):
    """From the submit on. Never two gangs, no line lost, and it runs again within 30 s."""
    chance = random.Random(seed)
    fault, moment = FAULTS[seed % len(FAULTS)], chance.uniform(0.3, 8)
    words = ("run", "--name", "j", "-c", "there", "-n", 2, "--max-attempts", 5, "--detach")
    done = there(*words, "--", "python", "-c", ALONE + COUNTS, 80, home)
    assert done.returncode == 0, done.stderr
    time.sleep(moment)
    found = list(pods(kubernetes, namespace).values())
    pod = chance.choice(found) if found else None
    began = time.monotonic()
    if fault == "kill server":
        os.kill(json.loads(there("server", "status", "--json").stdout)["pid"], signal.SIGKILL)
    elif fault == "pause":
        kubernetes.control_plane("pause")
        time.sleep(5)
        kubernetes.control_plane("resume")
    elif pod is not None and fault == "evict":
        kubernetes.evict(namespace, pod["metadata"]["name"])
    elif pod is not None and fault == "delete":
        kubernetes.delete(f"api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}")
    elif pod is not None and pod["spec"].get("nodeName"):
        kubernetes.nodes(fault.split()[0], pod["spec"]["nodeName"])
    until(lambda: advances(there), 90)
    took = time.monotonic() - began
    print(f"seed {seed}: {fault} after {moment:.1f} s, running again after {took:.1f} s")
    there("job", "stream", "j", timeout=200)
    job = shown(there, "j")
    assert job["status"] == "Completed", job["error"]
    for attempt in range(1, job["attempts"] + 1):
        for rank in range(2):
            words = ("job", "logs", "j", "--rank", rank, "--attempt", attempt)
            lines = there(*words).stdout.splitlines()
            start = int(lines[0].removeprefix("from ")) if lines else 0
            assert lines[1:] == [f"step {start + n + 1}" for n in range(len(lines) - 1)]
    assert lines[-1] == "step 80"
    assert took < 30


def advances(there: Allranks) -> bool:
    """Whether both ranks of the newest attempt print lines."""
    if shown(there, "j")["status"] not in ("Running", "Completed"):
        return False

    def lines() -> list[int]:
        logs = (there("job", "logs", "j", "--rank", rank).stdout for rank in range(2))
        return [text.count("step") for text in logs]

    before = lines()
    time.sleep(1)
    done = shown(there, "j")["status"] == "Completed"
    return done or all(b > a for a, b in zip(before, lines(), strict=True))


def test_a_killed_server_loses_no_line(there: Allranks, home: Path):
    words = ("run", "--name", "goes-on", "-c", "there", "-n", 2, "--detach")
    assert there(*words, "--", "python", "-c", COUNTS, 40).returncode == 0
    until(lambda: "step 5\n" in there("job", "logs", "goes-on").stdout, 60)
    status = json.loads(there("server", "status", "--json").stdout)
    os.kill(status["pid"], signal.SIGKILL)
    time.sleep(2)
    there("job", "stream", "goes-on", timeout=120)
    assert shown(there, "goes-on")["status"] == "Completed"
    for rank in range(2):
        lines = there("job", "logs", "goes-on", "--rank", rank).stdout.splitlines()
        assert lines == ["from 0", *(f"step {step}" for step in range(1, 41))]


def test_parameter_servers_end_with_the_workers(there: Allranks, code: Path):
    (code / "job.yml").write_text(
        """\
command: |
  python3 -c "
  import json, os, time
  task = json.loads(os.environ['TF_CONFIG'])
  print(task['task']['type'], task['task']['index'], len(task['cluster']['ps']), flush=True)
  time.sleep(600 if task['task']['type'] == 'ps' else 1)"
compute: there
resources: {instance_count: 3}
distribution: {type: tensorflow, parameter_server_count: 1}
"""
    )
    done = there("job", "create", "-f", "job.yml", "--stream", timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.splitlines()) == ["ps 0 1", *(f"worker {n} 1" for n in range(3))]


@pytest.mark.torch
def test_torch_trains_over_three_pods(there: Allranks):
    pytest.importorskip("torch", reason="PyTorch is not installed")
    script = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
model(torch.full((2, 4), float(dist.get_rank()))).sum().backward()
print("gradient", model.module.weight.grad[0, 0].item())
"""
    python = Path(sys.prefix) / "bin" / "python"
    done = there("run", "-c", "there", "-n", 3, "--", python, "-c", script, timeout=200)
    assert done.returncode == 0, done.stderr
    # The mean over ranks 0, 1 and 2 of twice the rank.
    assert [line for line in done.stdout.splitlines() if "gradient" in line] == ["gradient 2.0"] * 3
