"""`allranks job stacks`: where the ranks of a real job are, while it runs and after."""

import json
from pathlib import Path
from typing import Any

import pytest

from allranks.http_client import Client
from tests.support import Allranks, until

pytestmark = pytest.mark.slow

# One is elsewhere; what it starts has a stack of its own, and a rank without Python has none.
SCRIPT = """\
import os, subprocess, sys, time
rank = int(os.environ["RANK"])
def barrier(): time.sleep(600)
def load_batch(): time.sleep(600)
if rank == 2:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("up", flush=True)
    load_batch()
if rank == 3:
    print("up", flush=True)
    os.execvp("sleep", ["sleep", "600"])
print("up", flush=True)
barrier()
"""


def stacks(allranks: Allranks, name: str) -> Any:
    done = allranks("job", "stacks", name, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_where_every_rank_is_live_and_kept(shared: Allranks, code: Path, tmp_path: Path):
    (code / "train.py").write_text(SCRIPT)
    words = ("-n", 2, "-p", 2, "--detach", "--name", "stuck", "--", "python", "train.py")
    assert shared("run", *words).returncode == 0
    until(lambda: shared("job", "logs", "stuck").stdout.count("up") == 4)
    found: dict[str, Any] = {}

    def all_there() -> bool:  # the child of rank 2 may still be at its imports
        found.update(stacks(shared, "stuck"))
        return [(each["ranks"], each["own"]) for each in found["groups"]] == [
            ([0, 1], True),
            ([2], True),
            ([2], False),
            ([3], True),
        ]

    until(all_there)
    most, odd, child, sleep = found["groups"]
    assert most["doing"].startswith("in barrier (train.py:3)")
    assert odd["doing"].startswith("in load_batch (train.py:4)")
    assert child["name"].endswith("time.sleep(600)")
    assert sleep["why"].startswith("not a Python process")
    assert found["odd"] == {
        "rank": 2, "node": 1, "pid": odd["pids"][0][2], "at": "load_batch (train.py:4)"
    }  # fmt: skip
    said = shared("job", "stacks", "stuck").stdout
    assert "ranks 0-1 (2) are in barrier (train.py:3)\n" in said
    assert "train.py:4 load_batch  def load_batch(): time.sleep(600)\n" in said
    only = shared("job", "stacks", "stuck", "--rank", 3).stdout
    assert only.startswith("rank 3 is without a Python stack\n  sleep 600: not a Python process")
    assert shared("job", "cancel", "stuck").returncode == 0
    shared("job", "wait", "stuck")
    kept = stacks(shared, "stuck")
    assert not kept["live"]
    assert kept["groups"][0]["doing"] == most["doing"]
    shared("job", "download", "stuck", "-p", tmp_path)
    assert (tmp_path / "artifacts" / "system_logs" / "stacks.json").is_file()


def test_who_has_nothing_to_show(shared: Allranks):
    shared("run", "--name", "short", "--", "true")
    done = shared("job", "stacks", "short")
    assert done.returncode == 2
    assert "no stacks were saved" in done.stderr


TRAINS = """\
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(200, 16, 64, generator=torch.Generator().manual_seed(dist.get_rank()))
step, go_on = 0, torch.tensor(1.0)
while step < 400 or go_on:
    for batch in data:
        loss = model(batch).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        step += 1
        if step <= 400: told = loss.item()
    go_on = torch.tensor(float(not os.path.exists(os.environ["STOP"])))
    dist.broadcast(go_on, 0)
    print("passed", flush=True)
print(f"after 400 steps {told:.9f}")
"""


@pytest.mark.torch
@pytest.mark.timeout(900)
def test_a_job_that_trains_takes_no_harm_of_being_asked(
    shared: Allranks, shared_home: Path, code: Path, tmp_path: Path
):
    """A hundred times, and it computes what one that is left alone does."""
    (code / "train.py").write_text(TRAINS)
    stop = tmp_path / "stop"
    env = ("--env", f"STOP={stop}", "--env", "OMP_NUM_THREADS=1")
    run = ("run", *env, "-p", 2, "-d", "pytorch")
    done = shared(*run, "--detach", "--name", "asked", "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    until(lambda: "passed" in shared("job", "logs", "asked").stdout, 60)
    names = set()
    server = json.loads((shared_home / "server.json").read_text())
    with Client(server["url"], (shared_home / "token").read_text().strip()) as client:
        for _ in range(100):
            told = client.json("POST", "/api/v1/jobs/asked/stacks")
            assert {each["rank"] for each in told["processes"]} == {0, 1}
            names |= {each["frames"][-1]["function"] for each in told["processes"]}
    assert names == {"<module>"}
    stop.touch()
    until(lambda: "after 400" in shared("job", "logs", "asked").stdout)
    shared("job", "wait", "asked")
    asked = shared("job", "logs", "asked", "--no-prefix").stdout
    alone = shared(*run, "--name", "alone", "--", "python", "train.py", timeout=110).stdout
    results = {line for line in (asked + alone).splitlines() if "after 400" in line}
    assert len(results) == 2, results  # one for each rank's data
