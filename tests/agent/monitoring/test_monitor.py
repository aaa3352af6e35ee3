"""What nodes and ranks use: real processes that work and hold memory, and a stand-in for the
library of GPUs that this machine has not got."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from allranks.agent.monitoring import process_usage
from allranks.agent.monitoring.memory_limit import MemoryLimit
from allranks.agent.monitoring.monitor import Monitor, merged
from allranks.agent.processes.rank_processes import RankProcesses, families
from tests.support import until

WORKS = "print('up', flush=True)\nwhile True: pass"
HOLDS = "import time; held = bytearray(300 << 20); print('up', flush=True); time.sleep(600)"

NVML = r"""
#include <stdio.h>
#include <string.h>
typedef void *device;
typedef struct { unsigned gpu, memory; } rates;
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return 0; }
int nvmlInitWithFlags(unsigned flags) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *found)
{ *found = (device)(unsigned long)(index + 1); return 0; }
static unsigned of(device d) { return (unsigned)(unsigned long)d - 1; }
int nvmlDeviceGetUtilizationRates(device d, rates *r) { r->gpu = 10 * of(d) + 5; return 0; }
int nvmlDeviceGetMemoryInfo(device d, memory *m)
{ m->total = 80ull << 30; m->used = (of(d) + 1ull) << 30; m->free = 0; return 0; }
int nvmlDeviceGetPowerUsage(device d, unsigned *milliwatts)
{ if (of(d) == 2) return 3; *milliwatts = 250500; return 0; }
int nvmlDeviceGetEnforcedPowerLimit(device d, unsigned *milliwatts)
{ *milliwatts = 700000; return 0; }
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *degrees) { *degrees = 61; return 0; }
const char *nvmlErrorString(int code) { return "not supported"; }
"""


@pytest.fixture
def process():
    started = []

    def start(text: str) -> int:
        argv = [sys.executable, "-c", text]
        made = subprocess.Popen(argv, stdout=subprocess.PIPE, process_group=0)
        started.append(made)
        assert made.stdout.readline() == b"up\n"
        return made.pid

    yield start
    for each in started:
        os.killpg(each.pid, signal.SIGKILL)  # what it has started, too
        each.wait()
        each.stdout.close()


def told(path: Path):
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [{(n, gpu, rank): value for n, gpu, rank, value in each["points"]} for each in lines]


def used(family: RankProcesses, roots: dict[int, int]) -> dict[int, process_usage.Rank]:
    """What each rank uses, looked at anew."""
    found = family.look(roots, age=0.0)
    each = process_usage.of_processes(found.job)
    return {rank: process_usage.total(pids, each) for rank, pids in found.ranks.items()}


@pytest.mark.medium
def test_a_rank_is_all_of_its_processes(process):
    """A rank that works in a child of its child."""
    inner = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {WORKS!r}])"
    family = RankProcesses()
    root = process(inner)
    before, began = used(family, {3: root})[3], time.monotonic()
    until(lambda: used(family, {3: root})[3].busy > before.busy + 0.5, 60)
    assert used(family, {3: root})[3].busy - before.busy <= 2.2 * (time.monotonic() - began) + 0.1


def test_memory_that_is_held_is_seen(process):
    roots = {0: process(HOLDS), 1: process("print('up', flush=True); input()")}
    found = used(RankProcesses(), roots)
    assert found[0].memory > 300 << 20
    assert found[1].memory < 100 << 20


def test_a_rank_that_is_gone_uses_nothing():
    found = used(RankProcesses(), {0: 2**22 + 1})
    assert found == {0: process_usage.Rank(0, 0)}


# A rank whose grandchild outlives the child that started it, and says who it is.
LEAVES = """
import os, sys, time
if os.fork() == 0:
    if os.fork() == 0:
        held = bytearray(200 << 20)
        print(os.getpid(), flush=True)
        time.sleep(600)
    os._exit(0)
os.wait()
time.sleep(600)
"""
# An agent that asks what its rank uses: the real way in which orphans come to it.
AGENT = """
import json, os, subprocess, sys
from allranks.agent.monitoring import process_usage as load
from allranks.agent.processes.rank_processes import RankProcesses
from allranks.agent.processes.keeper import become_subreaper
become_subreaper()
ours = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", "allranks.agent.x"])
rank = subprocess.Popen(
    [sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, process_group=0
)
orphan = int(rank.stdout.readline())
with open(f"/proc/{orphan}/stat") as file:
    parent = int(file.read().rpartition(")")[2].split()[1])
found = RankProcesses().look({0: rank.pid})
told = {"orphan": orphan, "parent": parent, "me": os.getpid(), "ours": ours.pid, "rank": rank.pid}
job = load.total(found.job, load.of_processes(found.job))
print(json.dumps({**told, "ranks": found.ranks[0], "job": found.job, "memory": job.memory}))
os.killpg(rank.pid, 9)
ours.kill()
"""


def test_an_orphan_is_its_ranks_and_what_is_the_agents_is_nobodys():
    done = subprocess.run(
        [sys.executable, "-c", AGENT, LEAVES], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["parent"] == told["me"], "the agent has inherited it"
    assert told["ranks"][0] == told["rank"]
    assert told["orphan"] in told["ranks"]
    assert sorted(told["job"]) == sorted(told["ranks"])
    assert told["ours"] not in told["job"]
    assert told["me"] not in told["job"]
    assert told["memory"] > 200 << 20


def test_what_others_on_the_machine_hold_is_not_the_jobs(process, tmp_path):
    """The process that is measured holds little, the one beside it much; both are ours, so the
    agent that is asked is another one."""
    process(HOLDS)

    done = subprocess.run(
        [sys.executable, "-c", AGENT, LEAVES.replace("200 << 20", "1")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["memory"] < 100 << 20


def test_a_family_is_told_by_its_first_process(process):
    root = process("import os, time; os.fork() and print('up', flush=True); time.sleep(600)")
    found = families([root])
    assert [*found] == [root]
    assert found[root][0] == root
    assert len(found[root]) == 2


WRITES = """
import os, sys, time
with open(sys.argv[1] if len(sys.argv) > 1 else PATH, "wb") as file:
    file.write(bytes(64 << 20))
    file.flush()
    os.fsync(file.fileno())
print('up', flush=True)
time.sleep(600)
"""


def test_what_a_process_writes_is_counted(process, tmp_path):
    root = process(WRITES.replace("PATH", repr(str(tmp_path / "f"))))
    read, written = process_usage.moved([root])
    assert read >= 0
    assert written >= 64 << 20
    other = process("print('up', flush=True); input()")
    assert process_usage.moved([other])[1] < 1 << 20
    assert process_usage.moved([2**22 + 1]) == (0, 0)


SHARES = """
import os, time
held = bytearray(200 << 20)
for _ in range(3):
    if os.fork() == 0:
        time.sleep(600)
print('up', flush=True)
time.sleep(600)
"""


def test_memory_that_is_shared_is_held_once(process):
    """Three children that were forked with 200 MiB: nobody needs 800 MiB for that."""
    root = process(SHARES)
    members = families([root])[root]
    until(lambda: len(families([root])[root]) == 4)
    members = families([root])[root]
    assert process_usage.total(members, process_usage.of_processes(members)).memory > 700 << 20
    assert 200 << 20 < process_usage.held(members) < 350 << 20


def test_a_limit_is_for_what_is_held_and_is_told_once(process):
    root = process(SHARES)
    until(lambda: len(families([root])[root]) == 4)
    found = RankProcesses().look({7: root}, age=0.0)._replace(job=families([root])[root])
    each = process_usage.of_processes(found.job)
    ranks = {7: process_usage.total(found.ranks[7], each), 8: process_usage.Rank(0.0, 1)}
    resident = ranks[7].memory
    told = []

    def limit(most):
        return MemoryLimit(most, lambda *what: told.append(what))

    enough = limit(500 << 20)
    enough.look(found, ranks, resident)
    assert told == [], "what processes share counts once"
    small = limit(100 << 20)
    for _ in range(3):
        small.look(found, ranks, resident)
    ((held, most, rank),) = told
    assert held > 200 << 20
    assert (most, rank) == (100 << 20, 7)


def test_a_node_has_less_than_all_and_uses_some():
    before = process_usage.node()
    text = bytes(30 << 20)
    until(lambda: process_usage.node().total > before.total)
    found = process_usage.between(before, process_usage.node())
    assert len(text) < found["memory"] < found["memory_total"]
    assert 0 <= found["cpu"] <= 100.01
    assert all(found[name] >= 0 for name in ("disk_read", "disk_write", "net_in", "net_out"))


def test_what_is_written_to_disk_is_counted(tmp_path):
    """At least on a machine whose disk /proc knows."""
    if process_usage.node().disk_write == 0:
        pytest.skip("no disk here is counted")
    before = process_usage.node()
    with (tmp_path / "file").open("wb") as file:
        file.write(os.urandom(32 << 20))
        file.flush()
        os.fsync(file.fileno())
    until(lambda: process_usage.node().disk_write - before.disk_write >= 32 << 20)


def test_a_count_that_goes_back_is_no_rate():
    before = process_usage.Node(10.0, 5, 20, 1, 2, 100, 100, 100, 100)
    now = process_usage.Node(12.0, 6, 24, 1, 2, 0, 300, 0, 100)
    found = process_usage.between(before, now)
    assert (found["cpu"], found["disk_read"], found["disk_write"]) == (25.0, 0, 100)


def test_rates_are_reckoned_by_a_clock_that_is_never_set():
    before = time.monotonic()
    assert before <= process_usage.node().at <= time.monotonic()


def test_memory_is_that_of_the_control_group(tmp_path, monkeypatch):
    files = {"max": "1000", "current": "500", "memory.stat": "anon 3\ncached 100\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(process_usage, "_groups", lambda: [(tmp_path, "max", "current", "cached")])
    assert process_usage._limited(10**9) == (400, 1000)


def test_samples_merge_into_one():
    first = {("cpu", None, None): 10, ("memory", None, 0): 5}
    second = {("cpu", None, None): 30, ("memory", None, 0): 3, ("gpu_load", 1, None): 7}
    assert merged([first, second]) == {
        ("cpu", None, None): 20,
        ("memory", None, 0): 5,
        ("gpu_load", 1, None): 7,
    }
    assert merged([]) == {}


@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_monitor_tells_of_the_node_and_of_each_rank(process, tmp_path):
    roots = {0: process(WORKS), 5: process(HOLDS)}
    monitor = Monitor(lambda: roots, tmp_path / "r.jsonl")
    until(lambda: monitor.into.exists() and len(told(monitor.into)) >= 2)
    monitor.stop()
    second = told(monitor.into)[1]
    # Of a core, on a machine that may be busy with other things.
    assert second["cpu", None, 0] > 5 + second["cpu", None, 5]
    assert second["memory", None, 5] > 300 << 20
    assert 0 < second["cpu", None, None] <= 100
    assert 0 < second["node_cpu", None, None] <= 100
    assert second["memory", None, None] >= second["memory", None, 0] + second["memory", None, 5]
    assert second["memory_total", None, None] == second["node_memory_total", None, None]
    assert {"node_memory", "node_disk_read", "net_in", "disk_write"} <= {n for n, *_ in second}
    lines = len(told(monitor.into))
    monitor.stop()
    assert len(told(monitor.into)) == lines


def test_a_short_attempt_leaves_nothing(tmp_path):
    monitor = Monitor(dict, tmp_path / "r.jsonl")
    monitor.stop()
    assert not monitor.into.exists()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [
        (None, [0, 1, 2]),
        ("1,2", [1, 2]),
        ("GPU-aa", [0, 1, 2]),
        ("", []),
        ("-1", []),
        ("1,-1,0", [1]),
    ],
)
def test_gpus_are_asked_of_nvidias_library(tmp_path, visible, gpus):
    if shutil.which("gcc") is None:
        pytest.skip("no gcc to build the stand-in")
    source, library = tmp_path / "nvml.c", tmp_path / "libnvidia-ml.so.1"
    source.write_text(NVML)
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source], check=True)
    env = {"PATH": os.defpath, "LD_LIBRARY_PATH": str(tmp_path)}
    if visible is not None:
        env["CUDA_VISIBLE_DEVICES"] = visible
    line = (
        "import json; from allranks.agent.monitoring.gpu_usage import Gpus; "
        "print(json.dumps(Gpus().look()))"
    )
    said = subprocess.run(
        [sys.executable, "-c", line], env=env, capture_output=True, text=True, check=True
    )
    found = {int(index): each for index, each in json.loads(said.stdout).items()}
    assert list(found) == gpus
    if 1 not in gpus:
        return
    assert found[1] == {
        "gpu_load": 15,
        "gpu_memory": 2 << 30,
        "gpu_memory_total": 80 << 30,
        "gpu_power": 250.5,
        "gpu_power_limit": 700,
        "gpu_temperature": 61,
    }
    assert 2 not in gpus or "gpu_power" not in found[2]


def test_without_the_library_there_are_no_gpus():
    line = (
        "import sys; from allranks.agent.monitoring.gpu_usage import Gpus; "
        "assert Gpus().look() == {}; "
        "assert 'pynvml' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", line], env={"PATH": os.defpath}, check=True)
