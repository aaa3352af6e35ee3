"""What NVIDIA's library reports of a job's GPU is in its record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from allranks import Client
from tests.support import Allranks, answer

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

# Two gigabytes of one GPU, and work for as long as the report needs: forty looks, one a second.
BUSY = """
import time, torch
ballast = torch.ones(2 << 30, dtype=torch.uint8, device="cuda")
square = torch.randn(4096, 4096, device="cuda")
until = time.monotonic() + 50
while time.monotonic() < until:
    square = torch.tanh(square @ square)
    torch.cuda.synchronize()
"""
MAIN = {"gpu_load", "gpu_memory", "gpu_memory_total"}


def test_the_record_has_the_load_and_memory_of_the_gpu(
    cuda: int, allranks: Allranks, code: Path, home: Path
) -> None:
    (code / "busy.py").write_text(BUSY)
    words = ("run", "--json", "--name", "busy", "--gpus", "1", "--", "python", "busy.py")
    done = allranks(*words, timeout=300)
    assert done.returncode == 0, done.stderr
    most = greatest("busy")
    assert set(most) >= MAIN, most
    assert most["gpu_load"] > 50
    assert most["gpu_memory"] >= 2 << 30
    assert most["gpu_memory_total"] >= most["gpu_memory"]
    assert 0 < most.get("gpu_power", 1) < 2000
    assert 0 < most.get("gpu_temperature", 1) < 120
    report = answer(allranks, "report", "busy")
    assert "gpu" in json.dumps(report).lower()


def greatest(name: str) -> Mapping[str, float]:
    """The greatest value of each series of a GPU; the job had one."""
    series = Client().jobs.get(name).resources()
    of_gpus = [each for each in series if each["name"].startswith("gpu_")]
    assert {each["gpu"] for each in of_gpus} == {0}
    return {each["name"]: max(value for _, value in each["points"]) for each in of_gpus}
