"""`--hang-timeout`: what hangs is ended and explained, what is slow is left alone."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from allranks.core.diagnosis.collectives import Kind
from tests.collective_variants import SCRIPT, VARIANTS, Variant
from tests.support import Allranks

pytestmark = [pytest.mark.slow, pytest.mark.timeout(800)]

HANGS = """\
import os, signal, sys, time
rank = int(os.environ["RANK"])
def barrier(): time.sleep(600)
def load_batch(): time.sleep(600)
print("up", flush=True)
if "--stopped" in sys.argv: os.kill(0, signal.SIGSTOP)
load_batch() if rank == 2 else barrier()
"""


def ended(allranks: Allranks, name: str) -> Any:
    allranks("job", "wait", name, timeout=120)
    return json.loads(allranks("job", "show", name, "--json").stdout)


@pytest.mark.end_to_end
def test_a_job_that_hangs_is_ended_explained_and_tried_again(shared: Allranks, code: Path):
    (code / "train.py").write_text(HANGS)
    words = ("-n", 2, "-p", 2, "--hang-timeout", 3, "--max-attempts", 2, "--name", "hung")
    done = shared("run", *words, "--", "python", "train.py", timeout=120)
    assert done.returncode == 1
    said = (
        "rank 2 on node 1 has made no progress for 3 s: it is in load_batch (train.py:4) while 3 "
        "others are in barrier (train.py:3)"
    )
    assert f"error: {said}\n" in done.stderr
    assert "attempt 1 failed (HANG); attempt 2 starts on the same nodes" in done.stderr
    job = ended(shared, "hung")
    assert (job["attempts"], job["error"]["reason"], job["error"]["rank"]) == (2, "HANG", 2)
    kept = json.loads(shared("job", "stacks", "hung", "--json").stdout)
    assert [each["ranks"] for each in kept["groups"]] == [[0, 1, 3], [2]]
    assert kept["attempt"] == 2
    files = Path(job["folder"]).glob("attempts/*/system_logs/hang-stacks.json")
    assert len(list(files)) == 2
    # What hangs computes nothing.
    told = json.loads(shared("report", "goodput", "hung", "--json").stdout)
    seconds = told["jobs"][0]["seconds"]
    assert seconds["hang"] >= 6 > seconds["finalizing"]
    assert " HANG " in shared("report", "goodput", "hung").stdout


def test_stopped_processes_hang_and_are_told_as_that(shared: Allranks, code: Path):
    (code / "train.py").write_text(HANGS)
    words = ("-p", 2, "--hang-timeout", 3, "--name", "all-stopped")
    done = shared("run", *words, "--", "python", "train.py", "--stopped", timeout=120)
    assert done.returncode == 1
    assert "ranks 0-1 are stopped by a signal" in done.stderr


SERVE = """\
import socket, threading, time
def trickle(door):
    with door:
        for _ in range(130): door.sendall(b"x" * 3000); time.sleep(0.1)
server = socket.create_server(("127.0.0.1", 0))
def serve():
    while True: threading.Thread(target=trickle, args=server.accept()[:1], daemon=True).start()
threading.Thread(target=serve, daemon=True).start()
"""
HEALTHY = {
    # One validates, the other waits for it.
    "validates": "import os, time\nend = time.monotonic() + 13\n"
    "while int(os.environ['RANK']) == 0 and time.monotonic() < end: sum(range(1000))\n"
    "time.sleep(max(0, end - time.monotonic()))",
    # Nothing but short-lived children.
    "compiles": "import subprocess, time\nend = time.monotonic() + 13\n"
    "while time.monotonic() < end:\n"
    "    subprocess.run(['bash', '-c', 'for i in {1..99999}; do :; done'])",
    "prints": "import time\nfor _ in range(13): print('.', flush=True); time.sleep(1)",
    # One ends, and the other needs a while to notice.
    "ends": "import os, time\n"
    "for _ in range(9 * (os.environ['RANK'] == '0')): print('.', flush=True); time.sleep(1)\n"
    "if os.environ['RANK'] == '0': open('over', 'w')\n"
    "while not os.path.exists('over'): time.sleep(0.2)\n"
    "time.sleep(1.5 * (os.environ['RANK'] == '1'))",
    "writes": "import time, os\nfile = open('outputs.bin', 'wb', 0)\n"
    "for _ in range(130): file.write(b'x' * 16384); time.sleep(0.1)",
}


def test_what_is_slow_is_left_alone(shared: Allranks, code: Path):
    (code / "serve.py").write_text(SERVE)
    scripts = {
        **HEALTHY,
        "downloads": SERVE + "door = socket.create_connection(server.getsockname())\n"
        "while door.recv(65536): pass",
    }
    for name, text in scripts.items():
        (code / f"{name}.py").write_text(text)
        words = ("--detach", "-p", 2, "--hang-timeout", 6, "--name", name)
        assert shared("run", *words, "--", "python", f"{name}.py").returncode == 0
    jobs = {name: ended(shared, name) for name in scripts}
    assert {name: job["error"] for name, job in jobs.items()} == dict.fromkeys(scripts)


SKIPS = """\
import torch, torch.distributed as dist
dist.init_process_group("gloo")
tensor = torch.ones(3)
for step in range(9):
    print(step, flush=True)
    if step == 4 and dist.get_rank() == 1: dist.barrier()
    else: dist.all_reduce(tensor)
"""


@pytest.mark.torch
def test_a_rank_that_skips_a_collective_is_named(shared: Allranks, code: Path):
    """All of them wait for one another, and none for the same."""
    (code / "train.py").write_text(SKIPS)
    words = ("-d", "pytorch", "-p", 3, "--hang-timeout", 4, "--env", "OMP_NUM_THREADS=1")
    done = shared("run", "--name", "skips", *words, "--", "python", "train.py", timeout=150)
    assert done.returncode == 1
    told = "rank 1 called barrier #5 (train.py:6) where ranks 0, 2 called all_reduce #5 [3]"
    assert f"{told} of the default group, train.py:7; ranks 0-2 wait since" in done.stderr
    assert "hint: call the same collectives in the same order" in done.stderr
    error = ended(shared, "skips")["error"]
    assert (error["reason"], error["cause"]) == ("HANG", "COLLECTIVE_MISMATCH")
    assert error["collective"] == {
        "op": "all_reduce",
        "sequence": 5,
        "group": "the default group",
        "missing_ranks": [1],
        "waiting_ranks": [0, 1, 2],
        "where": "train.py:7",
    }
    assert error["retryable"] is False


# Of each kind one; all forty with `ALLRANKS_ALL_VARIANTS=1`.
_SOME = (0, 14, 27, 32, 37)


@pytest.mark.torch
@pytest.mark.parametrize(
    "variant",
    VARIANTS if os.environ.get("ALLRANKS_ALL_VARIANTS") else [VARIANTS[n] for n in _SOME],
    ids=lambda variant: variant.name,
)
def test_what_is_said_of_real_collectives_is_so(shared: Allranks, code: Path, variant: Variant):
    (code / "train.py").write_text(SCRIPT)
    procs = len(variant.calls) // variant.nodes
    words = ("-d", "pytorch", "-n", variant.nodes, "-p", procs, "--env", "OMP_NUM_THREADS=1")
    words += ("--warm", "torch", "--name", f"c-{variant.name}", "--hang-timeout", 5)
    shared("run", "-q", *words, "--", "python", "train.py", variant.argument, timeout=150)
    error = ended(shared, f"c-{variant.name}")["error"]
    assert variant.false_claims(error["message"]) == []
    assert "ended without calling" not in error["message"]
    if error["reason"] == "HANG":
        found = json.loads(shared("job", "stacks", f"c-{variant.name}", "--json").stdout)
        kind, ranks = found["collectives"]["kind"], tuple(found["collectives"]["ranks"])
        right = {*variant.right}
        if variant.right[0][0] is Kind.GROUPS:  # asked one after the other: it is so, too
            right |= {(Kind.NOT_CALLED, several) for _, several in variant.right}
        assert kind == Kind.OUTSIDE or (kind, ranks) in right
        assert kind == Kind.OUTSIDE or error["collective"]["waiting_ranks"]
    elif error["cause"] == "COLLECTIVE_MISMATCH":
        assert "their shapes, types or operations differ" in error["message"]
    else:
        assert variant.right[0][0] is Kind.GONE
