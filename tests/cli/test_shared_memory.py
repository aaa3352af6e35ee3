"""Shared memory of ranks that were killed does not stay on the node."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.chaos.test_kills import is_agent, of_launch
from tests.support import Allranks, answer, until

pytestmark = pytest.mark.slow

# Made with Python's own helper. It ignores SIGTERM, so that it is killed when it is to end.
SCRIPT = """
import os, signal, sys, time
from multiprocessing.shared_memory import SharedMemory
signal.signal(signal.SIGTERM, signal.SIG_IGN)
made = SharedMemory(create=True, size=1 << 20)
print("made", made.name, flush=True)
if sys.argv[1] == "self":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""

TORCH = """
import os, signal
import torch, torch.multiprocessing as mp
mp.set_sharing_strategy("file_system")
tensor = torch.zeros(5_000_000).share_memory_()
print("made", *(name for name in os.listdir("/dev/shm") if f"_{os.getpid()}_" in name), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def made(allranks: Allranks, job: str) -> list[str]:
    lines = allranks("job", "logs", job).stdout.splitlines()
    return [name for line in lines if line.startswith("made ") for name in line.split()[1:]]


def left(names: list[str]) -> list[str]:
    return [name for name in names if os.path.exists(f"/dev/shm/{name}")]


@pytest.mark.parametrize("how", ["self", "cancel", "agent"])
def test_of_a_rank_that_is_killed(
    how: str, shared: Allranks, shared_home: Path, code: Path
) -> None:
    (code / "train.py").write_text(SCRIPT)
    (code / "job.yml").write_text(
        f"command: python train.py {how}\ncode: .\nlimits: {{grace: 1}}\n"
    )
    job = f"shm-{how}"
    created = shared("job", "create", "-f", "job.yml", "--name", job)
    assert created.returncode == 0, created.stderr
    until(lambda: made(shared, job))
    names = made(shared, job)
    if how == "cancel":
        assert left(names)
        shared("job", "cancel", job)
    elif how == "agent":
        assert left(names)
        agents = {pid for pid in of_launch(shared_home, job, 1) if is_agent(pid)}
        (agent,) = (pid for pid in agents if psutil.Process(pid).ppid() in agents)
        os.kill(agent, signal.SIGKILL)
    until(lambda: not left(names))
    shared("job", "wait", job)
    assert answer(shared, "job", "show", job)["status"] != "Completed"


@pytest.mark.torch
def test_of_a_rank_with_torchs_helper(shared: Allranks, code: Path) -> None:
    (code / "train.py").write_text(TORCH)
    assert shared("run", "--name", "shm-torch", "--", "python", "train.py").returncode == 137
    names = made(shared, "shm-torch")
    assert names
    until(lambda: not left(names))
