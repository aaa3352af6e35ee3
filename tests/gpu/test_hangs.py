"""A GPU that computes is work; one that a rank waits for in vain is a hang."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import Allranks, answer

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(300)]

# A kernel that spins for hours, and a rank that wants its result: so does NCCL's look that waits.
SPIN = """
import torch
ones = torch.ones(3, device="cuda")
print("begun", flush=True)
torch.cuda._sleep(1 << 45)
ones.sum().item()
"""
# Half a minute of kernels, each waited for by its event's flag, without a line of output.
BUSY = """
import time, torch
square = torch.randn(4096, 4096, device="cuda")
print("begun", flush=True)
until = time.monotonic() + 30
while time.monotonic() < until:
    for _ in range(20):
        square = torch.tanh(square @ square)
    done = torch.cuda.Event()
    done.record()
    while not done.query():
        time.sleep(0.01)
"""


@pytest.fixture(autouse=True)
def _needs_cuda(cuda: int) -> None:
    pass


def test_a_rank_that_waits_for_an_endless_kernel_hangs(allranks: Allranks, code: Path) -> None:
    (code / "spin.py").write_text(SPIN)
    words = ("--name", "spin", "--gpus", "1", "--hang-timeout", "20", "--timeout", "120")
    done = allranks("run", *words, "--", "python", "spin.py", timeout=200)
    assert done.returncode != 0
    error = answer(allranks, "job", "show", "spin")["error"]
    assert error["cause"] == "HANG", error
    assert "spin.py" in str(answer(allranks, "job", "explain", "spin"))


def test_a_silent_rank_whose_gpu_computes_does_not_hang(allranks: Allranks, code: Path) -> None:
    (code / "busy.py").write_text(BUSY)
    words = ("--name", "busy", "--gpus", "1", "--hang-timeout", "12")
    done = allranks("run", *words, "--", "python", "busy.py", timeout=200)
    assert done.returncode == 0, done.stderr
