"""`allranks job explain`, and what a failure says by itself."""

import json
from pathlib import Path

import pytest

from tests.support import Allranks, answer
from tests.wheels import machine_tag, source, wheel


@pytest.mark.slow
def test_a_failure_is_explained_by_what_changed(shared: Allranks, code: Path):
    script = code / "train.py"
    script.write_text("print('fine')\n")
    words = ("run", "--experiment", "explained", "-q", "--env")
    assert shared(*words, "LR=1", "--", "python", "train.py").returncode == 0
    # More than is read of a log, whose lines are counted all the same.
    script.write_text("print('begin\\n' * 40_000)\nimport nosuchpackage\n")
    for name in ("told-once", "told-twice"):
        told = shared(*words[:3], "--env", "LR=2", "--name", name, "--", "python", "train.py")
        assert told.returncode == 1
    assert "cause: a Python module is not installed" in told.stderr
    assert "hint: `nosuchpackage` is not installed" in told.stderr

    error = json.loads(shared("job", "show", "told-twice", "--json").stdout)["error"]
    assert (error["reason"], error["cause"], error["retryable"]) == (
        "RANK_EXITED",
        "MODULE_MISSING",
        False,
    )
    assert (error["evidence"]["number"], error["evidence"]["where"]) == (40_005, "train.py:2")

    said = shared("job", "explain", "told-twice").stdout
    assert " > ModuleNotFoundError: No module named 'nosuchpackage'" in said
    assert "code: train.py: changed" in said
    assert "variable LR: 1 -> 2" in said
    assert "1 earlier job of explained failed the same way: told-once" in said
    found = json.loads(shared("job", "explain", "told-twice", "--json").stdout)
    assert (found["cause"], found["seen_before"]) == ("MODULE_MISSING", 1)


@pytest.mark.slow
def test_a_restart_is_compared_with_the_job_it_was_made_from(shared: Allranks):
    words = ("run", "--experiment", "compared", "-q", "--env")
    assert (
        shared(*words, "LR=1", "--name", "cmp-good", "--", "bash", "-c", "exit 0").returncode == 0
    )
    # What runs something else is not compared with.
    assert shared(*words, "LR=9", "--name", "cmp-other", "--", "sleep", 0).returncode == 0
    fails = ("--", "bash", "-c", "exit 3")
    assert shared(*words, "LR=2", "--name", "cmp-bad", *fails).returncode == 3
    for choice in ("--fresh", "--fresh"):  # it left nothing to resume
        shared("job", "restart", "cmp-bad", choice, "--set", "environment_variables.LR=3")
    shared("job", "restart", "cmp-bad", "--stream")
    expected = "changed since cmp-bad, which this job restarts:\n  variable LR: 2 -> 3\n"
    for name in ("cmp-bad-r2", "cmp-bad-r3"):
        shared("job", "wait", name)
        assert expected in shared("job", "explain", name).stdout
    same = shared("job", "explain", "cmp-bad-r4").stdout
    assert "unknown" not in same.lower()
    assert "no recorded changes since cmp-bad, which this job restarts" in same
    found = json.loads(shared("job", "explain", "cmp-bad-r2", "--json").stdout)
    assert (found["compared_with"], found["last_completed"]) == ("cmp-bad", "cmp-good")
    shared("job", "delete", "--yes", "cmp-bad")
    gone = shared("job", "explain", "cmp-bad-r2").stdout
    assert "changed since cmp-good completed:" in gone


@pytest.mark.slow
def test_only_jobs_that_failed_the_same_way_before_count_as_that(shared: Allranks, code: Path):
    (code / "a.py").write_text("{}['a" + 300 * "x" + "']\n")
    (code / "b.py").write_text("raise RuntimeError('b')\n")
    run = ("run", "-q", "--experiment", "ways", "--name")
    for number, command in enumerate(("exit 5", "exit 3", "python a.py", "python b.py")):
        shared(*run, f"ways-{number}", "--", "bash", "-c", command)
        assert answer(shared, "job", "explain", f"ways-{number}")["seen_in"] == []
    shared(*run, "ways-again", "--", "python", "a.py")
    assert answer(shared, "job", "explain", "ways-again")["seen_in"] == ["ways-2"]
    explained = shared("job", "explain", "ways-again").stdout
    assert "xxx…\n" in explained
    assert "no earlier job of ways that runs the same completed" in explained
    sweep = ("run", "-q", "--sweep", "x=choice(0,1)", "--name", "ways-tried")
    shared(*sweep, "--", "python", "a.py")
    for trial in ("ways-tried_0", "ways-tried_1"):
        assert answer(shared, "job", "explain", trial)["seen_in"] == []


def test_a_rejected_argument_names_the_input_of_a_file(shared: Allranks, code: Path):
    (code / "args.py").write_text(
        "import argparse; p = argparse.ArgumentParser()\n"
        "p.add_argument('--lr', type=float); p.parse_args()\n"
    )
    text = "name: typo\ncommand: python args.py --lr ${{inputs.lr}}\ncode: .\ninputs: {lr: 0.1}\n"
    (code / "job.yml").write_text(text)
    done = shared("job", "create", "-f", "job.yml", "--set", "inputs.lr=abc", "--stream")
    assert (done.returncode, "correct the input `lr`" in done.stderr) == (2, True), done.stderr
    assert "after `--`" not in done.stderr


def test_what_has_not_failed_is_not_explained(shared: Allranks):
    shared("run", "-q", "--name", "went-well", "--", "true")
    told = shared("job", "explain", "went-well")
    assert told.returncode != 0
    assert "went-well is Completed: no failure to explain" in told.stderr


@pytest.mark.slow
def test_every_command_prints_the_hint_of_an_environment_that_cannot_be_built(
    shared: Allranks, code: Path
):
    folder = code / "wheels"
    source(folder, "grain", "1.0")
    wheel(folder, "grain", "2.0", tag=machine_tag())
    file = code / "pipeline.yml"
    lines = ["--no-index", f"--find-links {folder}", "grain==1.0"]
    step = {"type": "command", "command": "true", "environment": {"pip": lines}}
    data = {"type": "pipeline", "name": "unbuilt", "jobs": {"one": step}}
    file.write_text(json.dumps(data))
    hint = "allranks environment map grain==1.0 grain==2.0"
    assert hint in shared("job", "create", "-f", file, "--stream").stderr
    step_job = answer(shared, "job", "show", "unbuilt")["steps"]["one"]["job"]
    assert hint in shared("job", "show", "unbuilt").stdout
    assert hint in shared("job", "explain", "unbuilt").stderr
    assert hint in shared("job", "show", step_job).stdout
    explained = shared("job", "explain", step_job)
    assert hint in explained.stderr
    assert explained.stdout.count("grain==1.0 cannot be installed") == 1


STEPS = """
type: pipeline
experiment_name: stepwise
inputs: {fails: "no"}
jobs:
  first:
    type: command
    command: echo of another kind
  second:
    type: command
    command: echo here; if [ ${{inputs.fails}} = yes ]; then echo bad luck; exit 1; fi
    inputs: {fails: "${{parent.inputs.fails}}"}
"""


@pytest.mark.slow
def test_a_failed_parent_leads_to_its_child_which_is_compared_with_its_like(
    shared: Allranks, code: Path
):
    (code / "steps.yml").write_text(STEPS)
    create = ("job", "create", "-f", "steps.yml", "--stream", "-q")
    assert shared(*create, "--name", "good").returncode == 0
    assert shared(*create, "--name", "bad", "--set", "inputs.fails=yes").returncode == 1
    said = shared("job", "explain", "bad")
    assert (
        "bad_second failed: rank 0 on node 0 exited with code 1; its last line: bad luck"
        in said.stdout
    )
    assert "changed since good_second completed" in said.stdout
    assert "input fails" in said.stdout
    assert "of another kind" not in said.stdout
    assert "hint: " in said.stderr

    one_by_one = ("--set", "limits.max_concurrent_trials=1")
    sweep = ("run", "--sweep", "x=choice(0,1)", "--name", "tried", "-q", *one_by_one, "--")
    assert shared(*sweep, "bash", "-c", "exit $AZUREML_SWEEP_x").returncode == 1
    said = shared("job", "explain", "tried").stdout
    assert "1 of 2 trials failed; the first of them:\n\ntried_1 failed: " in said
    assert "changed since tried_0 completed:\n  parameter x: 0 -> 1\n" in said
    assert json.loads(shared("job", "explain", "tried", "--json").stdout)["name"] == "tried_1"
    shared("run", "--sweep", "x=choice(0,1)", "--name", "fine", "-q", "--", "true")
    assert "error: no trial of fine has failed" in shared("job", "explain", "fine").stderr


@pytest.mark.slow
def test_the_last_job_that_completed_ended_before_this_one(shared: Allranks, code: Path):
    words = ("run", "--experiment", "overlapping", "-q", "--name")
    waits = "until [ -e end ]; do sleep 0.05; done"
    assert shared(*words, "ends-first", "--", "bash", "-c", "true").returncode == 0
    shared(*words, "ends-last", "--in-place", "--detach", "--", "bash", "-c", waits)
    assert shared(*words, "fails", "--", "bash", "-c", "exit 3").returncode == 3
    (code / "end").touch()
    assert shared("job", "wait", "ends-last").returncode == 0
    found = json.loads(shared("job", "explain", "fails", "--json").stdout)
    assert found["last_completed"] == "ends-first"


ECHOES = """\
import os, time, traceback
if os.environ["RANK"] == "1":
    try:
        {}["missing"]
    except KeyError:
        traceback.print_exc()
    open("raised", "w").close()
    time.sleep(60)
while not os.path.exists("raised"):
    time.sleep(0.01)
raise RuntimeError("[/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:1")
"""


def test_the_hint_leads_to_the_log_with_the_cause(shared: Allranks, code: Path):
    """The rank that failed first may only have noticed that another one did."""
    (code / "t.py").write_text(ECHOES)
    shared("run", "-q", "-p", 2, "--name", "echoes", "--", "python", "t.py")
    error = json.loads(shared("job", "show", "echoes", "--json").stdout)["error"]
    assert (error["rank"], error["evidence"]["rank"]) == (0, 1)
    assert error["hint"].endswith("allranks job logs echoes --rank 1")
