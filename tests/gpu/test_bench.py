"""`bench train --gpu` measures on the GPUs that are here, and says so where there are none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import peers

ROOT = Path(__file__).parents[2]


def train(path: Path) -> subprocess.CompletedProcess[str]:
    words = ["train", "--gpu", "--quick", "--torch-python", sys.executable, "--json", str(path)]
    argv = [sys.executable, "-m", "bench", *words]
    return subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=600)


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(700)
def test_training_on_gpus_is_measured_beside_ranks_by_hand(cuda: int, tmp_path: Path) -> None:
    done = train(tmp_path / "train.json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads((tmp_path / "train.json").read_text())
    assert len(told["gpus"]) == cuda
    assert set(told["samples"]["images/s"]) == {"allranks", "by hand"}


@pytest.mark.slow
def test_without_a_gpu_nothing_is_measured_and_why_is_told(tmp_path: Path) -> None:
    count = "import torch; print(torch.cuda.device_count())"
    if peers.said([sys.executable, "-c", count]) not in ("", "0"):
        pytest.skip("there are GPUs here")
    done = train(tmp_path / "train.json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "nothing was measured\nleft out: all of it (" in done.stdout
