"""How many ranks this machine runs at once, and which jobs do not wait for others."""

import json
import sys

import pytest

from tests.support import CLI, until

pytestmark = pytest.mark.slow
ONE = {"ALLRANKS_MAX_RANKS": "1"}


def test_others_wait_and_say_why_and_a_rank_may_submit_a_job_and_wait_for_it(allranks, code):
    """The parent's rank is the one that may run. It submits a sweep, too, whose trials may run."""
    (code / "parent.py").write_text(
        "import pathlib, subprocess, sys\n"
        f"call = [sys.executable, '-c', {CLI!r}, 'run']\n"
        "subprocess.run([*call, '--', 'echo', 'child'], check=True)\n"
        "sweep = ['--sweep', 'x=choice(1,2)', '--trials', '2', '--minimize', 'loss']\n"
        "trial = ['echo', 'loss: ${{search_space.x}}']\n"
        "subprocess.run([*call, '-m', 'loss=loss: (.*)', *sweep, '--', *trial], check=True)\n"
        "print('parent done', flush=True)\n"
    )
    words = ("--env", "ALLRANKS_HOME", "--name", "parent", "--", sys.executable, "parent.py")
    allranks("run", "--detach", *words, env=ONE)
    allranks("run", "--detach", "--name", "second", "--", "true")
    allranks("run", "--detach", "--name", "both", "--cpus", "0.5", "--memory", "1g", "--", "true")

    def second() -> dict:
        return json.loads(allranks("job", "show", "second", "--json").stdout)

    until(lambda: "waits for the job parent to end" in (second()["status_reason"] or ""))
    assert allranks("job", "wait", "parent").returncode == 0
    assert "parent done" in allranks("job", "logs", "parent").stdout
    assert allranks("job", "wait", "second").returncode == 0
    assert allranks("job", "wait", "both").returncode == 0


def test_a_raised_limit_reaches_a_job_that_waits_also_after_a_restart(allranks):
    def shown(name: str) -> dict:
        return json.loads(allranks("job", "show", name, "--json").stdout)

    allranks("compute", "update", "local", "--max-ranks", "1")
    allranks("run", "--name", "lim-a", "--detach", "--", "sleep", "60")
    allranks("run", "--name", "lim-b", "-n", 4, "--detach", "--", "hostname")
    own = ("--set", "resources.properties.local.max_ranks=1")
    allranks("run", "--name", "own", *own, "--detach", "--", "hostname")
    until(lambda: "(`max_ranks` of the compute: 1)" in (shown("lim-b")["status_reason"] or ""))
    allranks("compute", "update", "local", "--max-ranks", "4")
    until(
        lambda: (
            "for the job lim-a to end (`max_ranks` of the compute: 4)"
            in (shown("lim-b")["status_reason"] or "")
        )
    )
    allranks("compute", "update", "local", "--max-ranks", "8")
    assert allranks("job", "wait", "lim-b", "--timeout", "20").returncode == 0
    assert shown("own")["status"] == "Queued"  # its own limit stays
    allranks("job", "cancel", "lim-a")


def test_the_number_is_an_option_of_the_compute(allranks):
    assert allranks("compute", "update", "local", "--max-ranks", "0").returncode == 0
    assert "max_ranks=0" in allranks("compute", "show", "local").stdout
    wrong = allranks("compute", "update", "local", "--max-ranks", "-1")
    assert wrong.returncode == 2
    assert "whole number" in wrong.stderr
