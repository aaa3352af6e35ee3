"""`resources.properties.local.memory`: a job that holds more is ended, and told so."""

import json
from pathlib import Path

import pytest

from tests.support import Allranks

pytestmark = pytest.mark.slow

MEMORY = "resources.properties.local.memory="
HOLDS = """
import os, sys, time
held = bytearray(int(sys.argv[1]) << 20)
print("holds", flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture
def script(code: Path) -> Path:
    (code / "hold.py").write_text(HOLDS)
    return code


def test_a_job_that_holds_more_than_it_asked_for_is_ended(shared: Allranks, script: Path) -> None:
    words = ("--name", "fat", "--set", MEMORY + "150m", "--", "python", "hold.py", 300, 600)
    done = shared("run", *words)
    assert done.returncode == 137, done.stderr
    assert "more than the 157.3 MB that it requested" in done.stderr
    assert "Traceback" not in done.stderr
    error = json.loads(shared("job", "show", "fat", "--json").stdout)["error"]
    assert (error["reason"], error["blame"], error["rank"]) == ("OUT_OF_MEMORY", "user", 0)
    assert error["cause"] == "OUT_OF_MEMORY"
    assert "more memory" in error["hint"]


def test_all_processes_of_a_node_count_and_other_nodes_do_not(
    allranks: Allranks, script: Path
) -> None:
    limit = ("--set", MEMORY + "450m", "--in-place", "--", "python", "hold.py", 250)
    both = allranks("run", "--name", "both", "-p", 2, "-d", "none", *limit, 600)
    assert both.returncode == 137, both.stderr
    assert "on node 0" in both.stderr
    each = allranks("run", "--name", "each", "-n", 2, "-d", "none", *limit, 3)
    assert each.returncode == 0, each.stderr


def test_a_job_that_stays_below_is_left_alone(allranks: Allranks, script: Path) -> None:
    words = ("--name", "lean", "--set", MEMORY + "400m", "--", "python", "hold.py", 200, 3)
    assert allranks("run", *words).returncode == 0
    (load,) = json.loads(allranks("job", "show", "lean", "--json").stdout)["load"]
    assert load["memory_total"] == 400 << 20
    assert 200 << 20 < load["memory"] < 400 << 20
    assert load["node_load"]["memory_total"] > 400 << 20


def test_the_attempt_after_it_is_held_to_it_too(allranks: Allranks, script: Path) -> None:
    words = ("--max-attempts", 2, "--set", MEMORY + "150m", "--name", "again")
    done = allranks("run", *words, "--", "python", "hold.py", 300, 600)
    assert done.returncode == 137
    job = json.loads(allranks("job", "show", "again", "--json").stdout)
    assert (job["attempts"], job["error"]["reason"]) == (2, "OUT_OF_MEMORY")
