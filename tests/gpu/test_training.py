"""Real training on GPUs: collectives, examples, a resumed run, running out of memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, answer

pytestmark = [pytest.mark.gpu, pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(900)]

EXAMPLES = Path(__file__).parents[2] / "examples"
REDUCE = """
import os, sys, torch, torch.distributed as dist
local = int(os.environ["LOCAL_RANK"]) % torch.cuda.device_count()
torch.cuda.set_device(local)
dist.init_process_group(sys.argv[1])
ones = torch.full((1000,), float(dist.get_rank() + 1), device="cuda")
dist.all_reduce(ones)
print("sum", ones.sum().item(), ones.device.type, dist.get_backend())
dist.destroy_process_group()
"""
EXHAUST = """
import torch
total = torch.cuda.mem_get_info()[1]
held = [torch.empty(total // 4, dtype=torch.uint8, device="cuda") for _ in range(8)]
"""
Script = Callable[..., str]
Example = Callable[..., dict[str, Any]]


@pytest.fixture
def example(allranks: Allranks, code: Path) -> Example:
    """Run an example on some GPUs of one node; its result.json, and its output."""

    def run(name: str, gpus: int, *words: str) -> dict[str, Any]:
        job = f"{name}-{len(list(code.iterdir()))}"
        done = allranks(
            *(
                "job",
                "create",
                "-f",
                EXAMPLES / name / "job.yml",
                "--stream",
                "--name",
                job,
                *words,
            ),
            *("--set", "resources.instance_count=1"),
            *("--set", f"resources.gpus_per_instance={gpus}"),
            *("--set", f"distribution.process_count_per_instance={gpus}"),
            timeout=600,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert allranks("job", "download", job, "-p", job).returncode == 0
        path = code / job / "artifacts" / "outputs" / "result.json"
        return {**json.loads(path.read_text()), "job": job, "stdout": done.stdout}

    return run


@pytest.mark.parametrize("backend", ["nccl", "gloo"])
def test_two_ranks_add_up_tensors_on_two_gpus(two: int, code: Path, allranks: Allranks, backend):
    check_sum(allranks, code, backend, ranks=2, gpus=2)


def test_gloo_adds_up_tensors_of_two_ranks_on_one_gpu(cuda: int, code: Path, allranks: Allranks):
    check_sum(allranks, code, "gloo", ranks=2, gpus=1)


def test_nccl_starts_with_one_rank(cuda: int, code: Path, allranks: Allranks):
    check_sum(allranks, code, "nccl", ranks=1, gpus=1)


def check_sum(allranks: Allranks, code: Path, backend: str, ranks: int, gpus: int) -> None:
    (code / "reduce.py").write_text(REDUCE)
    size = ("-p", str(ranks), "--gpus", str(gpus), "-d", "pytorch")
    done = allranks("run", *size, "--", "python", "reduce.py", backend, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    total = 1000.0 * sum(range(1, ranks + 1))
    assert done.stdout.count(f"sum {total} cuda {backend}") == ranks


def test_mixed_precision_learns_on_a_gpu(cuda: int, example: Example):
    found = example("amp", min(2, cuda))
    assert found["dtype"] == "float16"
    assert found["device"] != "cpu"
    assert found["ranks"] == min(2, cuda)
    assert found["last"] < found["first"] / 2


def test_fsdp_learns_on_gpus_and_goes_on_from_its_checkpoint(cuda: int, example: Example):
    found = example("fsdp", min(4, cuda))
    assert "nccl" in found["backend"]
    assert found["last"] < found["first"] / 2


def test_a_killed_rank_costs_no_more_than_an_epoch(two: int, allranks: Allranks, example: Example):
    """And ends with the weights of an undisturbed run."""
    whole = example("resume", 2)
    killed = example("resume", 2, "--set", "environment_variables.KILL_AT=3")
    assert (whole["began_after"], killed["began_after"]) == (0, 2)
    assert killed["sha256"] == whole["sha256"]
    (times,) = answer(allranks, "report", "goodput", killed["job"])["jobs"]
    assert times["failures"] == 1
    assert times["seconds"]["restarting"] > 0
    assert 0 < times["goodput"] < 1


def test_running_out_of_gpu_memory_is_explained(cuda: int, allranks: Allranks, code: Path):
    (code / "exhaust.py").write_text(EXHAUST)
    words = ("--name", "exhaust", "--gpus", "1", "--", "python", "exhaust.py")
    done = allranks("run", *words, timeout=300)
    assert done.returncode == 1
    assert "a GPU ran out of memory" in done.stderr
    error = answer(allranks, "job", "show", "exhaust")["error"]
    assert error["cause"] == "CUDA_OUT_OF_MEMORY"
    assert error["blame"] == "user"


def test_a_warm_start_finds_the_gpu(cuda: int, allranks: Allranks, code: Path):
    """Nothing may have touched CUDA before the ranks are forked: a fork cannot use it then."""
    (code / "sum.py").write_text("import torch; print(torch.ones(3, device='cuda').sum().item())")
    for name in ("first", "second"):
        words = ("--name", name, "--gpus", "1", "--warm", "torch", "--", "python", "sum.py")
        done = allranks("run", *words, timeout=300)
        assert done.stdout == "3.0\n", done.stderr
        events = answer(allranks, "job", "events", name)
        (started,) = [each["data"] for each in events if each["kind"] == "started"]
        assert started["warm"] == 1
