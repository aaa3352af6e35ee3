"""Attempts of a real job: what ends one, what the next one is told, and what it is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, answer, until

# Preempted, it says how long it has and why, saves for longer than peers of a failure are given,
# and is then no success. The attempt after that fails, the one after that is done.
STORY = """
import os, signal, sys, time
say = lambda *words: print(os.environ["RANK"], *words, flush=True)
def told(*_):
    until, why = open(os.environ["ALLRANKS_DEADLINE_FILE"]).read().split()
    say("has", round(float(until) - time.time()), why)
    time.sleep(1.5)
    say("saved")
    sys.exit(1)
signal.signal(signal.SIGTERM, told)
number, why = os.environ["ALLRANKS_ATTEMPT"], os.environ["ALLRANKS_PREVIOUS_REASON"]
say("attempt", number, why, os.environ["ALLRANKS_GRACE"], os.environ["ALLRANKS_CONTINUES"])
failing = number == "2" and os.environ["RANK"] == "1"
time.sleep(60 if number == "1" else failing)  # else its peer is stopped before its first words
sys.exit(failing)
"""


def events(allranks: Allranks, name: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in answer(allranks, "job", "events", name) if each["kind"] == kind]


def lines(allranks: Allranks, name: str, attempt: int) -> list[str]:
    return sorted(allranks("job", "logs", name, "--attempt", attempt).stdout.splitlines())


@pytest.mark.slow
@pytest.mark.end_to_end
def test_a_simulated_preemption_acts_as_a_real_one_and_costs_no_attempt(shared: Allranks):
    options = ("-n", 2, "--max-attempts", 2, "--set", "limits.grace=7")
    shared("run", "--detach", "--name", "taken", *options, "--", "python", "-c", STORY)
    until(lambda: len(lines(shared, "taken", 1)) == 2)
    assert shared("job", "preempt", "taken", "--node", 2).returncode == 2
    done = shared("job", "preempt", "taken", "--node", 1)
    assert (done.returncode, done.stdout) == (0, "")
    assert "preempting node 1" in done.stderr
    assert shared("job", "wait", "taken", "--timeout", 50).returncode == 0
    # Both ranks have the whole grace at once, though one node alone was to go.
    assert lines(shared, "taken", 1) == [
        *("0 attempt 1  7 ", "0 has 7 PREEMPTED", "0 saved"),
        *("1 attempt 1  7 ", "1 has 7 PREEMPTED", "1 saved"),
    ]
    assert "0 attempt 2 PREEMPTED 7 " in lines(shared, "taken", 2)
    assert "0 attempt 3 RANK_EXITED 7 " in lines(shared, "taken", 3)
    job = answer(shared, "job", "show", "taken")
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 3, 2)
    (asked,) = events(shared, "taken", "preempt_asked")
    assert (asked["node"], "@" in asked["data"]["by"]) == (1, True)
    late = shared("job", "preempt", "taken")
    assert late.returncode == 2
    assert "is Completed and cannot be preempted" in late.stderr


@pytest.mark.medium
def test_a_restarted_job_gets_the_name_and_reason_of_the_previous_one(shared: Allranks):
    script = 'echo "$ALLRANKS_ATTEMPT $ALLRANKS_CONTINUES $ALLRANKS_PREVIOUS_REASON"; exit 3'
    shared("run", "--name", "failing", "--", "bash", "-c", script)
    shared("job", "restart", "failing")
    shared("job", "wait", "failing-r2")
    assert shared("job", "logs", "failing").stdout == "1  \n"
    assert shared("job", "logs", "failing-r2").stdout == "1 failing RANK_EXITED\n"


@pytest.mark.medium
def test_a_restart_with_other_values(shared: Allranks):
    words = ("--set", "inputs.lr=0.1", "--", "bash", "-c", "echo ${{inputs.lr}} $X")
    assert shared("run", "--name", "valued", *words).returncode == 0
    changes = ("--set", "inputs.lr=0.5", "--set", "environment_variables.X=a b")
    assert shared("job", "restart", "valued", *changes, "--stream").returncode == 0
    assert shared("job", "logs", "valued-r2").stdout == "0.5 a b\n"
    assert shared("job", "logs", "valued").stdout == "0.1\n"
    inputs = answer(shared, "job", "show", "valued")["spec"]["inputs"]
    assert inputs == answer(shared, "job", "show", "valued-r2")["spec"]["inputs"] | {"lr": 0.1}
    for change, said in (
        ("inputs.lrr=1", "inputs.lr"),
        ("name=x", "named after"),
        ("resources.instance_count=x", "instance_count"),
        ("nothing", "is not `key=value`"),
    ):
        refused = shared("job", "restart", "valued", "--set", change)
        assert refused.returncode == 2
        assert said in refused.stderr, refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.mark.slow
def test_only_transient_setup_failures_are_retried(shared: Allranks, tmp_path: Path):
    wanted = tmp_path / "requirements.txt"
    wanted.write_text("--index-url http://127.0.0.1:9/simple\nnobody-has-this==1.0\n")
    again = ("--max-attempts", 2, "--set", "retry.budgets.setup=1", "--", "true")
    env = {"UV_HTTP_RETRIES": "0"}
    done = shared("run", "--name", "cut-off", "-e", wanted, *again, env=env)
    assert done.returncode == 1
    job = answer(shared, "job", "show", "cut-off")
    assert (job["attempts"], job["launches"]) == (2, 1)
    assert (job["error"]["reason"], job["error"]["blame"]) == ("SETUP_FAILED", "infrastructure")
    wanted.write_text("--no-index\nnobody-has-this==1.0\n")
    shared("run", "--name", "never", "-e", wanted, *again)
    assert answer(shared, "job", "show", "never")["attempts"] == 1


def test_budgets_without_restarts_are_refused(shared: Allranks):
    done = shared("run", "--set", "retry.budgets.preempted=3", "--", "true")
    assert done.returncode == 2
    assert "max_attempts" in done.stderr


@pytest.mark.slow
def test_a_spot_job_is_preempted_by_a_regular_one(allranks: Allranks):
    """And comes back when that has ended."""
    stays = 'trap "echo saved; exit 1" TERM; echo up; sleep 60 & wait'
    script = f"test $ALLRANKS_ATTEMPT = 2 || {{ {stays}; }}"
    all_of_it = ("--set", f"resources.properties.local.cpus={len(os.sched_getaffinity(0))}")
    spot = ("--max-attempts", 2, "--set", "queue_settings.job_tier=spot")
    allranks("run", "--detach", "--name", "cheap", *all_of_it, *spot, "--", "bash", "-c", script)
    until(lambda: allranks("job", "logs", "cheap").stdout == "up\n")
    assert allranks("run", "--name", "dear", *all_of_it, "--", "true").returncode == 0
    assert allranks("job", "wait", "cheap", "--timeout", 50).returncode == 0
    assert allranks("job", "logs", "cheap", "--attempt", 1).stdout == "up\nsaved\n"
    job = answer(allranks, "job", "show", "cheap")
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 2, 2)
    (asked,) = events(allranks, "cheap", "preempt_asked")
    assert asked["data"] == {"by": "local", "message": "dear waits in the queue"}


@pytest.mark.slow
def test_an_attempt_says_what_it_continues_with(shared: Allranks):
    keeps = 'test $ALLRANKS_ATTEMPT = 2 || { echo 1 > "$ALLRANKS_STATE_DIR/at"; sleep 1; exit 3; }'
    for script, expected in (
        (keeps, ["attempt 2 continues with the state folder"]),
        ("test $ALLRANKS_ATTEMPT = 2", ["attempt 2 continues with no files of earlier ones"]),
    ):
        done = shared("run", "--max-attempts", 2, "--", "bash", "-c", script)
        assert done.returncode == 0, done.stderr
        notes = [line for line in done.stderr.splitlines() if "continues with" in line]
        assert notes == [f"note: {text}" for text in expected]
