"""Sweeps on this machine: one line, a file, Python; kills of the server; restart and delete."""

from __future__ import annotations

import json
import random
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import Allranks, answer, kill_server, until

# Reports (1 - the distance of x to 0.3), a little better at each step.
TRAIN = """\
import os, pathlib, sys, time
x, steps, pause = float(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
assert float(os.environ["AZUREML_SWEEP_x"]) == x
for step in range(1, steps + 1):
    print(f"score: {1 - abs(x - 0.3) - 0.1 / step:.5f}", flush=True)
    time.sleep(pause)
pathlib.Path("outputs").mkdir(exist_ok=True)
pathlib.Path("outputs/x.txt").write_text(str(x))
"""
METRIC = ("-m", "score=score: ([-0-9.]+)", "--maximize", "score")
COMMAND = ("--", sys.executable, "train.py", "${{search_space.x}}")


@pytest.fixture
def train(code: Path) -> Path:
    (code / "train.py").write_text(TRAIN)
    return code


def sweep_of(name: str, *more: object) -> tuple[object, ...]:
    """The words of a sweep over x."""
    return ("run", "--name", name, "--sweep", "x=uniform(0,1)", "--seed", 4, *METRIC, *more)


@pytest.mark.slow
@pytest.mark.end_to_end
def test_one_line(allranks: Allranks, train: Path, tmp_path: Path):
    words = sweep_of("s", "--trials", 5, "--concurrent", 2, "--sweep", "b=choice(16, 'a b')")
    done = allranks(*words, *COMMAND, 3, 0)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert any(each.startswith("s: 5 trials, 2 at a time") for each in lines)
    assert any("does not use the parameter b:" in each for each in lines)
    assert not any("the parameter x:" in each for each in lines)
    assert sum(line.startswith("s_") and "  Completed  score " in line for line in lines) == 5
    assert any(line.startswith("best: s_") for line in lines)

    job = answer(allranks, "job", "show", "s")
    assert (job["type"], job["status"], job["counts"]) == ("sweep", "Completed", {"Completed": 5})
    values = [each["value"] for each in job["trials"]]
    assert values == sorted(values, reverse=True)
    best = job["best"]
    assert best["job"] == job["trials"][0]["job"]
    assert best["value"] == pytest.approx(
        1 - abs(best["parameters"]["x"] - 0.3) - 0.1 / 3, abs=1e-4
    )
    assert {each["parameters"]["b"] for each in job["trials"]} <= {16, "a b"}

    trial = answer(allranks, "job", "show", best["job"])
    assert (trial["parent_job_name"], trial["parameters"]) == ("s", best["parameters"])
    assert [each["name"] for each in answer(allranks, "job", "list")] == ["s"]
    assert len(answer(allranks, "job", "list", "--all")) == 6
    assert len(answer(allranks, "job", "list", "--parent", "s")) == 5
    assert "5 trials" in allranks("job", "list").stdout

    shown = allranks("job", "show", "s").stdout
    assert f"best        {best['job']}: score" in shown
    printed = allranks("job", "stream", "s").stdout.splitlines()
    assert len([each for each in printed if each.startswith("s_3 | score: ")]) == 3

    goodput = answer(allranks, "report", "goodput", "s")
    assert {each["name"] for each in goodput["jobs"]} == {f"s_{number}" for number in range(5)}
    for words in (("report", "s"), ("job", "stacks", "s"), ("job", "logs", "s")):
        done = allranks(*words)
        assert (done.returncode, "s is a sweep" in done.stderr) == (2, True), done.stderr
    assert f"parent      s\nparameters  x={best['parameters']['x']}" in trial_shown(allranks, best)

    # The best trial answers for the sweep.
    folder = tmp_path / "got"
    assert allranks("job", "download", "s", "-p", folder).returncode == 0
    assert float((folder / "artifacts/outputs/x.txt").read_text()) == best["parameters"]["x"]
    made = answer(allranks, "model", "register", "m", "--job", "s", "--path", "outputs")
    assert made["job"] == best["job"]
    assert "search_space" not in made["lineage"]["command"]
    assert str(best["parameters"]["x"]) in made["lineage"]["command"]
    assert allranks("job", "metrics", "s").stdout == allranks("job", "metrics", best["job"]).stdout


def trial_shown(allranks: Allranks, trial: dict[str, Any]) -> str:
    return allranks("job", "show", trial["job"]).stdout


@pytest.mark.slow
def test_the_same_seed_draws_the_same_parameters(allranks: Allranks, train: Path):
    def parameters(name: str) -> list[float]:
        allranks(*sweep_of(name, "--trials", 4), *COMMAND, 1, 0)
        trials = answer(allranks, "job", "show", name)["trials"]
        return [e["parameters"]["x"] for e in sorted(trials, key=lambda each: each["number"])]

    assert parameters("one") == parameters("two")


@pytest.mark.slow
def test_a_file_with_a_grid_and_a_gang_of_ranks(allranks: Allranks, code: Path):
    (code / "s.yml").write_text(
        """\
$schema: https://azuremlschemas.azureedge.net/latest/sweepJob.schema.json
type: sweep
name: g
trial:
  command: |
    echo "loss $(( ${{search_space.a}} * 10 + ${{search_space.b}} )) rank $RANK of ${{inputs.n}}"
  distribution: {type: pytorch, process_count_per_instance: 2}
  resources: {instance_count: 2}
  metrics: {loss: 'loss (\\d+)'}
sampling_algorithm: grid
search_space:
  a: {type: choice, values: [3, 1]}
  b: {type: choice, values: [2, 5, 4]}
objective: {goal: Minimize, primary_metric: loss}
limits: {max_total_trials: 100, max_concurrent_trials: 3}
inputs: {n: 4}
"""
    )
    assert allranks("job", "validate", "-f", "s.yml").returncode == 0
    dry = answer(allranks, "job", "create", "-f", "s.yml", "--dry-run")
    assert (dry["name"], len(dry["ranks"])) == ("g_0", 4)
    assert allranks("job", "create", "-f", "s.yml", "--stream").returncode == 0
    job = answer(allranks, "job", "show", "g")
    assert sorted(each["value"] for each in job["trials"]) == [12, 14, 15, 32, 34, 35]
    assert job["best"]["parameters"] == {"a": 1, "b": 2}
    assert "loss 12 rank 3 of 4" in allranks("job", "logs", job["best"]["job"]).stdout


@pytest.mark.slow
def test_trials_that_fall_behind_are_stopped(allranks: Allranks, train: Path):
    words = sweep_of("s", "--trials", 6, "--concurrent", 6, "--set", "retry.max_attempts=1")
    space = train / "space.yml"
    space.write_text(
        """\
search_space:
  x: {type: choice, values: [0.3, 0.9]}
sampling_algorithm: grid
early_termination: {type: bandit, slack_amount: 0.2, delay_evaluation: 2}
"""
    )
    # One that falls behind goes on until it is stopped.
    endless = TRAIN.replace("steps + 1)", "10**6 if x == 0.9 else steps + 1)")
    (train / "train.py").write_text(endless)
    words = ("run", "--name", "s", "--sweep", "space.yml", *METRIC, *COMMAND, 40, 0.1)
    done = allranks(*words)
    assert done.returncode == 0, done.stderr
    job = answer(allranks, "job", "show", "s")
    good, bad = job["trials"]
    assert (job["counts"], job["stopped_early"]) == ({"Completed": 1, "Canceled": 1}, 1)
    assert "2 trials, 1 stopped early" in done.stderr
    assert (good["status"], good["stopped_early"], good["parameters"]) == (
        "Completed",
        None,
        {"x": 0.3},
    )
    assert bad["status"] == "Canceled"
    # Both have 40 reports of 0.1 s each; a busy machine stops it some after its second one.
    assert re.match(r"its best value is 0\.\d+ at interval \d; ", bad["stopped_early"])
    assert bad["duration"] < good["duration"]
    assert f"{bad['job']}  Canceled (stopped early)" in done.stderr


@pytest.mark.slow
def test_a_metric_that_nobody_reports(allranks: Allranks, train: Path):
    words = ("run", "--name", "s", "--sweep", "x=uniform(0,1)", "--trials", 3, "--concurrent", 1)
    done = allranks(*words, "-m", METRIC[1], "--minimize", "loss", *COMMAND, 1, 0)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    note = next(line for line in lines if line.startswith("note: no trial has reported 'loss'"))
    assert "they reported score" in note
    hints = ("-m 'loss=loss: ([0-9.]+)'", "`trial.metrics.loss: 'loss: ([0-9.]+)'`")
    assert all(hint in note for hint in hints)
    assert lines.index(note) < max(i for i, line in enumerate(lines) if line.startswith("s_"))
    assert "error: no trial reported the metric 'loss'" in done.stderr
    job = answer(allranks, "job", "show", "s")
    assert (job["status"], job["best"], job["exit_code"]) == ("Failed", None, 1)

    # What it says to write into a file reads the metric.
    key, pattern = re.search(r"`([\w.]+): '([^']+)'`, in Python", note).groups()  # type: ignore[union-attr]
    file = {
        "type": "sweep",
        "trial": {"command": "echo loss: ${{search_space.x}}"},
        "search_space": {"x": {"type": "choice", "values": [0.5]}},
        "sampling_algorithm": "grid",
        "objective": {"goal": "minimize", "primary_metric": "loss"},
        "limits": {"max_total_trials": 1},
    }
    (train / "sweep.yml").write_text(json.dumps(file))
    words = ("job", "create", "-f", "sweep.yml", "--name", "t", "--stream")
    done = allranks(*words, "--set", f"{key}={pattern}")
    assert done.returncode == 0, done.stderr
    assert answer(allranks, "job", "show", "t")["best"]["value"] == 0.5


@pytest.mark.medium
def test_a_pattern_without_a_match_and_the_trial_that_failed_first_are_named(
    allranks: Allranks, code: Path
):
    sweep = ("run", "--sweep", "x=choice(1,2)", "--minimize", "loss", "--name")
    done = allranks(*sweep, "none", "-m", "loss=nothing (.*)", "--", "echo", "loss: 1")
    assert "hint: 'nothing (.*)' found no number; see" in done.stderr
    assert "job logs none_0" in done.stderr
    script = "sleep $(( 4 - 2 * AZUREML_SWEEP_x )); exit $AZUREML_SWEEP_x"
    done = allranks(*sweep, "bad", "-m", "loss=loss: (.*)", "--", "bash", "-c", script)
    assert done.returncode == 2
    assert "all 2 trials failed; the first, bad_1: rank 0 on node 0 exited" in done.stderr


@pytest.mark.slow
def test_choices_without_an_objective_are_an_array(allranks: Allranks, code: Path):
    """No metric, no sampler: each combination runs, and all have to complete."""
    words = ("--", "bash", "-c", "exit $(( ${{search_space.seed}} / ${{search_space.by}} ))")
    done = allranks("run", "--name", "a", "--sweep", "seed=choice(1, 2, 3)", *words[:-1], "true")
    assert done.returncode == 0, done.stderr
    lines = {line for line in done.stderr.splitlines() if line.startswith("a_")}
    assert lines == {f"a_{number}  Completed  seed={number + 1}" for number in range(3)}
    job = answer(allranks, "job", "show", "a")
    assert (job["objective"], job["best"], job["total_trials"]) == (None, None, 3)
    shown = allranks("job", "show", "a").stdout
    assert "none, grid sampling" in shown
    head = next(line for line in shown.splitlines() if line.startswith("TRIAL"))
    assert head.split() == ["TRIAL", "STATUS", "SEED", "TOOK"]
    assert "has no objective" in allranks("report", "sweep", "a").stderr
    space = ("--sweep", "seed=choice(1, 2)", "--sweep", "by=choice(2, 4)")
    done = allranks("run", "--name", "b", *space, *words)
    assert done.returncode == 1
    assert "error: 1 of 4 trials did not complete; b_" in done.stderr
    done = allranks("run", "--sweep", "lr=uniform(0, 1)", *words)
    assert (done.returncode, "needs --minimize or --maximize" in done.stderr) == (2, True)


@pytest.mark.slow
def test_values_that_are_no_numbers_do_not_win(allranks: Allranks, code: Path):
    script = "echo loss: ${{search_space.x}}"
    words = ("--sampler", "grid", "-m", r"loss=loss: (\S+)", "--minimize", "loss")
    words = (*words, "--", "bash", "-c", script)
    done = allranks("run", "--name", "n", "--sweep", "x=choice(nan, inf)", *words)
    assert done.returncode == 1
    assert "no trial that completed has a finite value of the metric 'loss'" in done.stderr
    done = allranks("run", "--name", "s", "--sweep", "x=choice(nan, inf, -inf, 2.5)", *words)
    assert done.returncode == 0, done.stderr
    best = answer(allranks, "job", "show", "s")["best"]
    assert (best["value"], best["parameters"]) == (2.5, {"x": 2.5})
    assert allranks("job", "show", "s").stdout.count("- (1 nan or infinite)") == 3


@pytest.mark.slow
def test_an_environment_that_cannot_be_built_is_tried_once(allranks: Allranks, train: Path):
    (train / "needs.txt").write_text("--no-index\nnowhere==1\n")
    words = sweep_of("s", "--trials", 12, "--concurrent", 2, "-e", "needs.txt")
    done = allranks(*words, *COMMAND, 1, 0)
    assert done.returncode == 1
    job = answer(allranks, "job", "show", "s")
    assert len(job["trials"]) == 2
    assert {each["status"] for each in job["trials"]} <= {"Failed", "Canceled"}
    error = job["error"]
    assert error["reason"] == "SETUP_FAILED"
    assert "could not be prepared, and no other trial was tried: " in error["message"]
    assert "nowhere" in error["message"]
    assert error["hint"].endswith("then submit the sweep again")
    assert "has reported" not in done.stderr


@pytest.mark.slow
def test_cancel_restart_and_delete(allranks: Allranks, train: Path, tmp_path: Path):
    go = tmp_path / "go"
    waits = f"""\
import os, pathlib, time
while os.environ["ALLRANKS_JOB"] not in ("s_0", "s_1") and not pathlib.Path({str(go)!r}).exists():
    time.sleep(0.05)
"""
    (train / "train.py").write_text(waits + TRAIN)
    words = sweep_of("s", "--trials", 6, "--concurrent", 2, "--detach")
    assert allranks(*words, *COMMAND, 3, 0).returncode == 0
    until(lambda: answer(allranks, "job", "show", "s")["counts"].get("Completed", 0) >= 2)
    assert "has not ended" in allranks("job", "delete", "--yes", "s_0").stderr
    allranks("job", "cancel", "s")
    ended = answer(allranks, "job", "wait", "s", code=1)
    assert ended["status"] == "Canceled"
    counts = answer(allranks, "job", "show", "s")["counts"]
    assert counts["Canceled"] >= 1
    assert counts.keys() <= {"Canceled", "Completed"}

    go.touch()
    done = allranks("job", "restart", "s", "--trials", 7, "--stream")
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "s goes on; trials that completed stay"
    job = answer(allranks, "job", "show", "s")
    assert (job["status"], job["counts"]) == ("Completed", {"Completed": 7})
    assert {each["number"] for each in job["trials"]} == {*range(7)}
    assert len(answer(allranks, "job", "list", "--parent", "s")) == 7 + counts["Canceled"]
    again = allranks("job", "restart", "s", "--resume")
    assert (again.returncode, "all 7 trials of s have completed" in again.stderr) == (2, True)

    # A completed sweep runs anew, under a name of its own.
    anew = allranks("job", "restart", "s", "--set", "limits.max_total_trials=2", "--stream")
    assert anew.returncode == 0, anew.stderr
    assert anew.stderr.splitlines()[0] == (
        "s-r2 runs anew, because s is Completed (`--trials N` goes on to more trials)"
    )
    assert answer(allranks, "job", "show", "s-r2")["counts"] == {"Completed": 2}
    assert answer(allranks, "job", "show", "s")["counts"] == {"Completed": 7}
    assert allranks("job", "delete", "--yes", "s-r2").returncode == 0

    other = allranks("run", "--name", "c", "--", "true")
    assert other.returncode == 0
    assert "is not a sweep" in allranks("job", "restart", "c", "--trials", 3).stderr

    best = job["best"]["job"]
    assert allranks("job", "delete", "--yes", best).returncode == 0
    assert answer(allranks, "job", "show", "s")["best"]["job"] != best
    assert allranks("job", "delete", "--yes", "s").returncode == 0
    assert [each["name"] for each in answer(allranks, "job", "list", "--all")] == ["c"]


@pytest.mark.slow
def test_a_name_that_another_job_has(allranks: Allranks, train: Path):
    assert allranks("run", "--name", "s_1", "--", "true").returncode == 0
    assert allranks(*sweep_of("s", "--trials", 3), *COMMAND, 1, 0).returncode == 0
    trials = answer(allranks, "job", "show", "s")["trials"]
    assert {each["job"] for each in trials} == {"s_0", "s_1-2", "s_2"}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_killed_server_loses_and_doubles_no_trial(
    allranks: Allranks, home: Path, train: Path, seed: int
):
    """Killed at random moments, it runs the same trials with the same parameters, each once."""
    rng = random.Random(seed)
    assert allranks(*sweep_of("calm", "--trials", 8), *COMMAND, 2, 0.05).returncode == 0
    words = sweep_of("s", "--trials", 8, "--concurrent", 3, "--detach")
    assert allranks(*words, *COMMAND, 2, 0.05).returncode == 0
    for _ in range(6):
        until(lambda: (home / "server.json").exists())
        pause = rng.uniform(0, 0.3)
        until_time(pause)
        kill_server(home)
        status = answer(allranks, "job", "show", "s")["status"]
        if status == "Completed":
            break
    assert answer(allranks, "job", "wait", "s")["status"] == "Completed"
    job, calm = (answer(allranks, "job", "show", name) for name in ("s", "calm"))
    assert sorted(each["number"] for each in job["trials"]) == list(range(8))
    assert {each["status"] for each in job["trials"]} == {"Completed"}
    drawn, undisturbed = (
        {each["number"]: each["parameters"] for each in of["trials"]} for of in (job, calm)
    )
    assert drawn == undisturbed
    assert len(answer(allranks, "job", "list", "--parent", "s")) == 8


def until_time(seconds: float) -> None:
    """Return after some seconds."""
    signal.sigtimedwait([], seconds)


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        (("--sweep", "x=nuniform(0,1)"), "'nuniform' is not a distribution", "uniform"),
        (("--sweep", "x=uniform(0)"), "uniform takes 2 numbers", "min_value, max_value"),
        (("--sweep", "x=uniform(a,b)"), "uniform takes 2 numbers", "min_value"),
        (("--sweep", "x=loguniform(0,1)"), "needs bounds above 0", "uniform"),
        (("--sweep", "x=choice()"), "neither NAME=DISTRIBUTION", "--sweep"),
        (("--sweep", "x=choice(1,2"), "neither NAME=DISTRIBUTION", "--sweep"),
        (("--sweep", "nosuch.yml"), "nor a file", "--sweep"),
        (("--sweep", "x=randint(2)", "--sweep", "x=randint(3)"), "'x' is given twice", "once"),
        (("--sweep", "x=randint(2)", "--state", "s"), "cannot share a state", "--state"),
        (("--sweep", "x=randint(2)", "--rehearse"), "not available with --sweep", "leave one"),
        (("--trials", "3"), "it belongs to a sweep", "--sweep"),
    ],
)
def test_wrong_words(shared: Allranks, words: tuple[str, ...], message: str, hint: str):
    done = shared("run", *words, "--minimize", "loss", "--", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert hint in done.stderr.partition("hint: ")[2]


@pytest.mark.parametrize(
    ("words", "where"),
    [
        (("--sweep", "x=uniform(2,1)", "--minimize", "l", "--", "true"), "--sweep: min"),
        (("--sweep", "x=uniform(0,1)", "--minimize", "l", "--sampler", "grid", "--", "true"), "x"),
        (
            ("--sweep", "x=randint(2)", "--minimize", "l", "--", "echo", "${{search_space.y}}"),
            "COMMAND",
        ),
        (
            ("--sweep", "x=randint(2)", "--minimize", "l", "-c", "nosuch", "--", "true"),
            "compute",
        ),
        (
            ("--sweep", "x=randint(2)", "--minimize", "l", "-e", "nosuch:1", "--", "true"),
            "-e/--environment",
        ),
        (("--sweep", "x=randint(2)", "--", "true"), "--minimize or --maximize"),
    ],
)
@pytest.mark.medium
def test_a_sweep_that_is_refused_leaves_no_trace(
    shared: Allranks, words: tuple[str, ...], where: str
):
    before = len(answer(shared, "job", "list", "--all", "--limit", 1000))
    done = shared("run", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    assert where in done.stderr
    assert "hint: " in done.stderr
    assert len(answer(shared, "job", "list", "--all", "--limit", 1000)) == before


@pytest.mark.slow
def test_a_sweep_says_that_its_early_stopping_comes_too_late(shared, code):
    (code / "train.py").write_text("for step in range(3): print('loss', 3 - step)\n")
    sweep = ("run", "--sweep", "x=choice(0,1)", "--minimize", "loss", "-m", r"loss=loss (\d)")
    late = ("--set", "early_termination.delay_evaluation=5", "--stop-early", "median")
    done = shared(*sweep, *late, "--name", "stops-late", "--", "python", "train.py")
    assert done.returncode == 0, done.stderr
    note = "it first looks at report 5 of 'loss', and a trial reports 3; lower delay_evaluation"
    assert note in done.stderr + done.stdout
    assert note in shared("job", "show", "stops-late").stdout
    early = ("--set", "early_termination.delay_evaluation=2", "--stop-early", "median")
    soon = shared(*sweep, *early, "--name", "stops-soon", "--", "python", "train.py")
    assert "early stopping" not in soon.stderr + soon.stdout


@pytest.mark.medium
def test_a_restart_runs_the_trials_that_failed_again(allranks: Allranks, code: Path):
    (code / "t.py").write_text(
        "import os, sys\n"
        "trial, mended = int(sys.argv[1]), os.path.exists(sys.argv[2])\n"
        "sys.exit(trial % 2 if not mended else 0)\n"
    )
    mended = code.parent / "mended"
    words = ("run", "-q", "--name", "g", "--sweep", "x=choice(0, 1, 2, 3)", "--sampler", "grid")
    command = ("python", "t.py", "${{search_space.x}}", mended)
    allranks(*words, "--", *command)
    assert answer(allranks, "job", "show", "g")["counts"] == {"Completed": 2, "Failed": 2}
    mended.touch()
    done = allranks("job", "restart", "g", "--resume", "--stream")
    assert done.returncode == 0, done.stderr
    job = answer(allranks, "job", "show", "g")
    assert job["counts"] == {"Completed": 4}
    assert [each["parameters"]["x"] for each in job["trials"]] == [0, 1, 2, 3]
