"""What allranks finds out about ranks in pods: hangs, causes, rehearsals; as on every engine."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.counting import SCRIPT, STEP
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.kubernetes, pytest.mark.timeout(600)]


def told(there: Allranks, *words: object) -> Any:
    return json.loads(there(*words, "--json").stdout)


def test_a_hang_is_noticed_and_the_rank_that_is_elsewhere_is_named(there: Allranks, code: Path):
    (code / "stuck.py").write_text(
        """\
import os, time
def load(): time.sleep(600)
def wait(): time.sleep(600)
print("up", flush=True)
load() if os.environ["RANK"] == "2" else wait()
"""
    )
    words = ("--hang-timeout", 6, "--name", "stuck", "-c", "there", "-n", 3)
    done = there("run", *words, "--", "python3", "stuck.py", timeout=120)
    assert told(there, "job", "show", "stuck")["error"]["reason"] == "HANG", done.stderr
    assert "rank 2 is in load (stuck.py:2)" in there("job", "stacks", "stuck").stdout
    assert "wait (stuck.py:3)" in there("job", "stacks", "stuck").stdout


def test_stacks_of_a_living_job(there: Allranks, code: Path):
    (code / "lives.py").write_text(
        "import time\ndef waits(): time.sleep(600)\nprint('up', flush=True)\nwaits()\n"
    )
    words = ("run", "--detach", "--name", "lives", "-c", "there", "-n", 3, "--")
    assert there(*words, "python3", "lives.py").returncode == 0
    until(lambda: there("job", "logs", "lives").stdout.count("up") == 3, 60)
    assert "ranks 0-2 (3) are in waits (lives.py:2)" in there("job", "stacks", "lives").stdout
    there("job", "cancel", "lives")


def test_the_first_rank_that_failed_is_named_with_its_line(there: Allranks, code: Path):
    (code / "train.py").write_text(
        """\
import os, time
def step():
    batch = None
    return batch["loss"]
if os.environ["RANK"] == "1":
    step()
time.sleep(600)
"""
    )
    words = ("run", "--name", "fails", "-c", "there", "-n", 3, "--", "python3", "train.py")
    done = there(*words, timeout=120)
    assert done.returncode == 1
    job = told(there, "job", "show", "fails")
    assert job["error"]["rank"] == 1
    said = there("job", "explain", "fails").stdout
    assert "rank 1 on node 1" in said, said
    assert "train.py:4" in said, said
    assert "TypeError: 'NoneType' object is not subscriptable" in said, said


def test_a_server_that_pods_do_not_reach_is_told_by_the_doctor(there: Allranks, code: Path):
    assert there("compute", "update", "there", "--server-address", "127.0.0.1").returncode == 0
    (code / "job.yml").write_text("command: echo hi\ncompute: there\n")
    began = time.monotonic()
    done = there("doctor", "--job", "job.yml", "--timeout", 20)
    assert time.monotonic() - began < 25
    assert done.returncode == 1, done.stdout
    assert "node 0 does not answer: no agent has connected" in done.stdout
    assert "--server-address" in done.stdout


def test_a_resume_is_rehearsed_in_its_pods(there: Allranks, code: Path):
    (code / "count.py").write_text(SCRIPT)
    words = ("-c", "there", "-n", 2, "-m", f"loss={STEP}")
    done = there(
        "run", "--rehearse", *words, "--json", "--", "python3", "count.py", "well", 300, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["verdict"], found["rank"]) == ("exact", 1)
    assert told(there, "job", "show", found["killed"])["launches"] == 1


def test_a_rehearsed_preemption_gives_the_nodes_back(there: Allranks):
    script = """
import signal, sys, time
def end(*_):
    print("saved", flush=True)
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
print("up", flush=True)
time.sleep(8)
"""
    words = ("run", "--detach", "--name", "back", "-c", "there", "-n", 3, "--max-attempts", 2, "--")
    assert there(*words, "python3", "-c", script).returncode == 0
    until(lambda: there("job", "logs", "back").stdout.count("up") == 3, 60)
    assert there("job", "preempt", "back", "--node", 2).returncode == 0
    there("job", "wait", "back", timeout=120)
    job = told(there, "job", "show", "back")
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 2, 2), job["error"]
    for rank in range(3):
        log = there("job", "logs", "back", "--rank", rank, "--attempt", 1).stdout
        assert log == "up\nsaved\n"
