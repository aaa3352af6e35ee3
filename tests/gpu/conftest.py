"""The GPUs of this machine, for tests that run jobs on them: `./check --gpu`.

Without an NVIDIA driver, or with a PyTorch that was built without CUDA, tests skip and say so.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import pytest

from bench import peers
from tests.support import Allranks

Once = Callable[[int], None]


# Files in /dev that stand for GPUs where the test made them: allranks counts those.
DEVICES = "ALLRANKS_TEST_GPU_DEVICES"


def driver() -> list[str]:
    """The names of the GPUs that NVIDIA's driver has; empty without a driver."""
    import pynvml

    if DEVICES in os.environ:
        return ["a file"] * int(os.environ[DEVICES])
    try:
        pynvml.nvmlInit()
        handles = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return [str(pynvml.nvmlDeviceGetName(each)) for each in handles]
    except pynvml.NVMLError:
        return []


@pytest.fixture(scope="session")
def gpus() -> list[str]:
    found = driver()
    if not found:
        pytest.skip("needs an NVIDIA GPU and its driver")
    return found


@pytest.fixture(scope="session")
def cuda(gpus: list[str]) -> int:
    """How many GPUs PyTorch sees."""
    count = peers.said([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"])
    if not count:
        pytest.skip("needs PyTorch: ./check --gpu installs it")
    if count == "0":
        pytest.skip(
            f"{gpus[0]} is here, but this PyTorch sees no GPU: it was built without CUDA, or the "
            "driver is too old (ALLRANKS_TORCH_INDEX names another index for it)"
        )
    return int(count)


@pytest.fixture
def two(cuda: int) -> int:
    if cuda < 2:
        pytest.skip("needs two GPUs, one for each rank of NCCL")
    return cuda


@pytest.fixture
def script(allranks: Allranks, code: object) -> Callable[..., str]:
    """Run a Python text as a job; its output. The job has to complete."""

    def run(text: str, *words: str) -> str:
        done = allranks("run", *words, "--", "python", "-c", text, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return str(done.stdout)

    return run
