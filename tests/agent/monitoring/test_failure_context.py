"""What a node tells of the moment at which a rank fails."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from allranks.agent.monitoring.failure_context import FailureContext, counter

MEMORY = Path("/sys/fs/cgroup/memory")
EAT = "import os; held = []\nwhile True: held.append(os.urandom(1 << 20))"


@pytest.fixture
def limited() -> Iterator[Path]:
    """A memory cgroup of 40 MiB."""
    own = MEMORY / f"allranks-test-{os.getpid()}"
    try:
        own.mkdir()
        (own / "memory.limit_in_bytes").write_text("40M")
    except OSError:
        pytest.skip("needs root and memory cgroups of version 1")
    yield own
    own.rmdir()


def test_a_kill_for_want_of_memory_is_seen(limited: Path, tmp_path: Path):
    circumstances = FailureContext()
    join = f"echo $$ > {limited}/cgroup.procs && exec '{sys.executable}' -c '{EAT}'"
    eater = subprocess.Popen(["bash", "-c", join])
    assert eater.wait(30) == -9
    facts = circumstances.now(tmp_path, os.environ["PATH"])
    assert facts["oom_kills"] == 1
    # Who may not read the kernel's log knows of the kill all the same.
    with contextlib.suppress(PermissionError):
        os.close(os.open("/dev/kmsg", os.O_RDONLY))
        assert f"Killed process {eater.pid} " in facts["oom_line"]


def test_a_kill_by_hand_is_none(tmp_path: Path):
    circumstances = FailureContext()
    sleeper = subprocess.Popen(["sleep", "60"])
    sleeper.kill()
    sleeper.wait(10)
    facts = circumstances.now(tmp_path, "/usr/bin:/bin")
    assert facts["oom_kills"] == 0
    assert facts["disk_free"] > 0
    assert "oom_line" not in facts


@pytest.mark.parametrize(
    ("cgroup", "file", "text"),
    [
        ("0::/job/7\n", "job/7/memory.events", "low 0\noom 2\noom_kill 3\noom_group_kill 0\n"),
        ("0::/elsewhere\n", "memory.events", "oom_kill 3\n"),
        ("5:cpu:/x\n4:memory:/s/u\n", "memory/s/u/memory.oom_control", "under_oom 0\noom_kill 3\n"),
    ],
)
def test_the_counter_of_our_own_cgroup(tmp_path: Path, cgroup: str, file: str, text: str):
    """Where the machine's own is hidden, as in some containers."""
    proc, mount = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text(cgroup)
    (mount / file).parent.mkdir(parents=True)
    (mount / file).write_text(text)
    assert counter(proc, mount) == mount / file
