"""Looking into running jobs on GPUs: profiles, allocators, recorded collectives, held failures."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, answer, until

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(600)]

# Ranks share the GPUs; each step reads its loss, and keeps some memory.
TRAIN = """
import os, sys, torch, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count())
dist.init_process_group(sys.argv[1])
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(4)]).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-4)
kept, step = [], 0
while True:
    loss = model(torch.randn(512, 2048, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    dist.all_reduce(next(model.parameters()).grad)
    optimizer.step()
    loss.item()
    kept.append(bytearray(20000))
    step += 1
    if step == 20:
        print("up", flush=True)
    if dist.get_rank() == 1 and step == int(sys.argv[2]):
        import time; time.sleep(600)
"""
FAIL = """
import torch
weights = torch.arange(6.0, device="cuda").reshape(2, 3)
print(weights @ torch.ones(4, device="cuda"))
"""


@pytest.fixture(autouse=True)
def _needs_cuda(cuda: int) -> None:
    pass


def start(allranks: Allranks, code: Path, name: str, *words: object, script: str = TRAIN) -> None:
    (code / "train.py").write_text(script)
    done = allranks("run", "--detach", "--name", name, "--gpus", 1, *words, timeout=120)
    assert done.returncode == 0, done.stderr


def profile(allranks: Allranks, name: str, kind: str) -> Any:
    return answer(allranks, "job", "profile", name, "--kind", kind, "--seconds", 1)


def test_a_running_job_on_a_gpu_is_profiled(allranks: Allranks, code: Path):
    words = ("-p", 1, "-d", "pytorch", "--", "python", "train.py", "nccl", 0)
    start(allranks, code, "train", *words)
    until(lambda: "up" in allranks("job", "logs", "train").stdout, 60)
    traced = profile(allranks, "train", "torch")
    assert traced["missing"] == []
    devices = {operator["device"] for operator in traced["operators"]}
    assert devices == {"cpu", "gpu"}, traced
    trace = json.loads((Path(traced["folder"]) / "torch-rank-0.json").read_text())
    assert "kernel" in {event.get("cat") for event in trace["traceEvents"]}
    (rank,) = profile(allranks, "train", "memory")["memory"]
    assert rank["gpus"][0]["allocated_bytes"] > 4 * 2048 * 2048 * 4
    assert any("train.py" in line[0] for line in rank["lines"])
    assert "tensors hold" in allranks("job", "profile", "train", "--last").stdout
    collectives = answer(allranks, "job", "stacks", "train", "--collectives")
    assert "nccl" in json.dumps(collectives)
    assert allranks("job", "cancel", "train").returncode == 0


def test_ranks_that_wait_for_one_on_a_gpu_are_a_hang(allranks: Allranks, code: Path):
    words = ("-p", 2, "-d", "pytorch", "--hang-timeout", 15)
    start(allranks, code, "late", *words, "--", "python", "train.py", "gloo", 30)
    assert allranks("job", "wait", "late", timeout=200).returncode != 0
    error = answer(allranks, "job", "show", "late")["error"]
    assert error["cause"] == "HANG", error
    assert "rank 1 has not called all_reduce" in error["message"], error


def test_a_held_failure_shows_its_tensors(allranks: Allranks, code: Path):
    words = ("--on-failure", "hold", "--", "python", "train.py")
    start(allranks, code, "held", *words, script=FAIL)
    until(lambda: "held until" in str(answer(allranks, "job", "show", "held")["status_reason"]), 60)
    done = allranks("job", "debug", "held", input="p weights.shape, weights.sum().item()\n")
    assert "(torch.Size([2, 3]), 15.0)" in done.stdout, done.stdout + done.stderr
    assert allranks("job", "release", "held").returncode == 0
