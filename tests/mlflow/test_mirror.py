"""What our record knows of a job is in MLflow: its facts, its points, once each."""

import json
import math
import os
import signal
from pathlib import Path

import pytest

from tests.mlflow.conftest import Tracked, params, tags
from tests.support import until

pytestmark = [pytest.mark.frameworks, pytest.mark.timeout(600)]

POINTS = 60
FACTS = """
import time
print("loss nan", "loss inf", "loss 0.5", sep="\\n")
time.sleep(1.5)  # long enough to be looked at
"""
LONG = f"""
import os, time, mlflow
for step in range({POINTS}):
    mlflow.log_metric("logged", step * 2, step=step)
    print("printed", step * 3, "at", step, flush=True)
    open(os.environ["SEEN"], "w").write(str(step))
    time.sleep(0.1)
"""


@pytest.mark.end_to_end
def test_a_job_that_never_heard_of_mlflow_is_a_run_with_all_its_facts(tracked: Tracked) -> None:
    (tracked.code / "data.txt").write_text("x")
    words = ["--name", "facts", "--tag", "team=blue", "--display-name", "A job", "-m"]
    words += [r"loss: {1}=loss (\S+)", "-i", f"data={tracked.code / 'data.txt'}"]
    tracked.job(FACTS, *words)
    until(lambda: tracked.status("facts") == "FINISHED")
    (run,) = tracked.runs("facts")
    assert run["info"]["run_name"] == "A job"
    assert run["info"]["end_time"] > run["info"]["start_time"]
    said = tags(run)
    assert said["team"] == "blue"
    assert said["allranks.environment"] == "current"
    assert said["allranks.input.data"].endswith("data.txt")
    (name,) = [m["key"] for m in run["data"]["metrics"] if m["key"].startswith("loss")]
    values = [value for _, value in tracked.history(run, name)]
    assert math.isnan(float(values[0]))
    assert values[1:] == [pytest.approx(1.797e308, rel=0.01), 0.5]
    assert "system/cpu_utilization_percentage" in {m["key"] for m in run["data"]["metrics"]}


def test_literal_inputs_are_parameters_and_a_failed_job_a_failed_run(tracked: Tracked) -> None:
    job = tracked.code / "job.yml"
    job.write_text("name: fails\ncommand: exit ${{inputs.code}}\ninputs: {code: 3}\n")
    assert tracked.allranks("job", "create", "-f", job, "--stream").returncode != 0
    until(lambda: tracked.status("fails") == "FAILED")
    assert params(tracked.runs("fails")[0]) == {"code": "3"}


def test_trials_are_nested_runs_of_their_sweep(tracked: Tracked) -> None:
    words = ["--name", "swept", "--sweep", "lr=choice(0.5,0.25)", "--sampler", "grid"]
    words += ["--minimize", "loss"]
    script = (
        "import os, mlflow; lr = float(os.environ['AZUREML_SWEEP_lr']);"
        "mlflow.log_metric('loss', lr * 2)"
    )
    tracked.job(script, *words)
    best = tracked.shown("job", "show", "swept")["best"]
    assert (best["value"], best["parameters"]) == (0.5, {"lr": 0.25})
    until(lambda: tracked.status("swept") == "FINISHED")
    (sweep,) = tracked.runs("swept")
    assert params(sweep) == {"best_lr": "0.25"}
    assert {m["key"]: m["value"] for m in sweep["data"]["metrics"]}["loss"] == 0.5
    for number, lr in enumerate(("0.5", "0.25")):
        until(lambda name=f"swept_{number}": tracked.status(name) == "FINISHED")
        (trial,) = tracked.runs(f"swept_{number}")
        assert tags(trial)["mlflow.parentRunId"] == sweep["info"]["run_id"]
        assert params(trial) == {"lr": lr}


def test_steps_are_nested_runs_of_their_pipeline(tracked: Tracked) -> None:
    steps = {
        "one": {"command": "echo 1", "inputs": {"lr": "${{parent.inputs.lr}}"}},
        "inner": {"type": "pipeline", "jobs": {"two": {"command": "echo 2"}}},
    }
    job = {"type": "pipeline", "inputs": {"lr": 0.5}, "jobs": steps}
    file = tracked.code / "p.yml"
    file.write_text(json.dumps(job))
    done = tracked.allranks("job", "create", "-f", file, "--name", "pipe", "--stream")
    assert done.returncode == 0, done.stderr
    for name, parent in (
        ("pipe_one", "pipe"),
        ("pipe_inner", "pipe"),
        ("pipe_inner_two", "pipe_inner"),
    ):
        until(lambda name=name: tracked.status(name) == "FINISHED")
        (run,), (above,) = tracked.runs(name), tracked.runs(parent)
        assert tags(run)["mlflow.parentRunId"] == above["info"]["run_id"]
    assert params(tracked.runs("pipe_one")[0]) == {"lr": "0.5"}


def test_a_parameter_is_the_scripts_to_tell(tracked: Tracked) -> None:
    script = "import mlflow; mlflow.log_param('lr', 5.0); mlflow.log_param('own', 1)"
    words = ("--env", "READ=${{inputs.lr}} ${{inputs.seed}}", "--name", "tells")
    tracked.job(script, *words, "--set", "inputs.lr=5", "--set", "inputs.seed=7")
    until(lambda: tracked.status("tells") == "FINISHED")
    assert params(tracked.runs("tells")[0]) == {"lr": "5.0", "own": "1", "seed": "7"}


def test_no_point_is_lost_or_doubled_whatever_is_killed(tracked: Tracked, tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    words = ["--name", "killed", "--env", f"SEEN={seen}", "--detach", "-m"]
    words.append(r"printed=printed (?P<value>\d+) at (?P<step>\d+)")
    (tracked.code / "script.py").write_text(LONG)
    begun = tracked.allranks("run", *words, "--", "python", "script.py", client="mlflow3")
    assert begun.returncode == 0, begun.stderr

    def step() -> int:
        return int(seen.read_text() or 0) if seen.exists() else 0

    until(lambda: step() > 10, 60)
    (child,) = tracked.child("uvicorn")
    child.kill()
    until(lambda: step() > 25, 120)
    os.kill(tracked.shown("server", "status")["pid"], signal.SIGKILL)
    assert tracked.allranks("job", "wait", "killed").returncode == 0
    until(lambda: tracked.status("killed") == "FINISHED", 60)
    (run,) = tracked.runs("killed")
    assert tracked.history(run, "logged") == [(n, n * 2) for n in range(POINTS)]
    assert tracked.history(run, "printed") == [(n, n * 3) for n in range(POINTS)]
    shown = tracked.shown("job", "metrics", "killed")
    assert [each["value"] for each in shown["logged"]] == [n * 2 for n in range(POINTS)]
    assert [each["value"] for each in shown["printed"]] == [n * 3 for n in range(POINTS)]
