"""Models that answer on a GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Allranks

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.torch]

# The sum of its input, and whether it was on a GPU.
MODEL = """
import torch
class Sum(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = torch.nn.Parameter(torch.ones(1))
    def forward(self, x):
        return torch.cat([self.one * x.sum(), self.one * float(x.is_cuda)])
torch.jit.script(Sum()).save("sum.pt")
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("count", [0, 1])
def test_torchscript_answers_on_its_gpu(
    cuda: int, count: int, allranks: Allranks, code: Path
) -> None:
    (code / "make.py").write_text(MODEL)  # torch reads its source
    subprocess.run([sys.executable, "make.py"], cwd=code, check=True)
    assert allranks("model", "create", "sum", "--path", "sum.pt").returncode == 0
    made = allranks("model", "deploy", "sum", "--gpus", count, timeout=200)
    assert made.returncode == 0, made.stdout + made.stderr
    done = allranks("endpoint", "invoke", "sum", "--data", "[[1.0, 2.0]]")
    assert json.loads(done.stdout) == [3.0, float(count)], done.stderr
