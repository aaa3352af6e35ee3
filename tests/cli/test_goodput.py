"""`allranks report goodput` on real jobs: one that is restarted, and goes on from where it was."""

from __future__ import annotations

import json

import pytest

from allranks.cli.report.goodput import summary
from allranks.core.insights.goodput import Activity, Goodput, Span
from tests.support import until

# Every tenth step is kept; it dies in steps 27 and 48, so that it does 8 and 9 of them twice.
RESUMES = """\
import os, pathlib, time
kept, attempt = pathlib.Path("outputs/kept"), int(os.environ["ALLRANKS_ATTEMPT"])
for step in range(int(kept.read_text()) if kept.exists() else 0, 60):
    time.sleep(0.03)
    print(f"step {step} loss {1 / (step + 1)}", flush=True)
    if step % 10 == 9:
        kept.write_text(str(step + 1))
        print("checkpoint_time 0.02", flush=True)
    if (step, attempt) in ((27, 1), (48, 2)):
        os._exit(3)
"""
METRICS = (
    "-m",
    r"loss=step (?P<step>\d+) loss (?P<value>\S+)",
    "-m",
    r"checkpoint_time=_time (\S+)",
)


@pytest.mark.slow
def test_a_job_that_is_restarted(shared, code):
    (code / "train.py").write_text(RESUMES)
    options = ("--name", "thrice", "--max-attempts", 3, *METRICS)
    assert shared("run", *options, "--", "python", "train.py").returncode == 0
    told = json.loads(shared("report", "goodput", "thrice", "--json").stdout)
    found = told["jobs"][0]
    assert (found["failures"], found["lost_unknown"], found["cost"]) == (2, False, 0.02)
    # 17 steps of at least 0.03 s, timed when the lines were read, and fewer than were not lost.
    assert 17 * 0.03 / 2 <= found["seconds"]["lost"] < found["seconds"]["computing"]
    assert found["seconds"]["computing"] >= 60 * 0.03
    assert found["whole"] == pytest.approx(sum(found["seconds"].values()))
    assert told["checkpoints"]["failures"] == 2
    shown = shared("report", "goodput", "thrice")
    assert "checkpoints: every " in shown.stdout
    assert "with so few failures this is a rough estimate" in shown.stdout
    lines = shared("job", "show", "thrice").stdout.splitlines()
    line = next(each for each in lines if each.startswith("goodput"))
    assert "lost" in line
    assert "restarting" in line


@pytest.mark.slow
def test_what_a_checkpoint_costs_is_seen_in_state_and_steps(shared, code):
    """Of a script that says nothing of it: 0.4 s each, beside steps of 0.03 s."""
    script = (
        RESUMES.replace('"outputs/kept"', 'os.environ["ALLRANKS_STATE_DIR"], "kept"')
        .replace("        kept.write", "        time.sleep(0.4)\n        kept.write")
        .replace('        print("checkpoint_time 0.02", flush=True)\n', "")
    )
    (code / "train.py").write_text(script)
    options = ("--name", "silent", "--max-attempts", 3, *METRICS[:2])
    assert shared("run", *options, "--", "python", "train.py").returncode == 0
    told = json.loads(shared("report", "goodput", "silent", "--json").stdout)
    assert 0.3 < told["jobs"][0]["cost"] < told["jobs"][0]["seconds"]["computing"]
    assert told["checkpoints"]["cost"] == told["jobs"][0]["cost"]


@pytest.mark.slow
def test_several_jobs_an_experiment_and_what_cannot_be_known(shared):
    script = 'echo "$ALLRANKS_ATTEMPT"; exit $((2 - ALLRANKS_ATTEMPT))'
    options = ("--experiment", "known", "--max-attempts", 2, "-m", r"n=(\d)")
    shared("run", "--name", "dies-once", *options, "--", "bash", "-c", script)
    shared("run", "--name", "is-well", "--experiment", "known", "--", "true")
    shown = shared("report", "goodput", "--experiment", "known").stdout
    assert [line.split("  ")[0] for line in shown.splitlines()[:4]] == [
        "JOB",
        "is-well",
        "dies-once",
        "in all",
    ]
    assert "lost work is unknown for dies-once" in shown
    assert "as the metric checkpoint_time" in shown
    two_ways = shared("report", "goodput", "is-well", "--experiment", "y")
    assert (two_ways.returncode, "jobs or an experiment are missing" in two_ways.stderr) == (
        2,
        True,
    )
    both = json.loads(shared("report", "goodput", "is-well", "dies-once", "--json").stdout)
    assert both["in_all"]["whole"] == pytest.approx(sum(each["whole"] for each in both["jobs"]))


@pytest.mark.slow
def test_a_job_that_was_canceled_before_its_first_step_has_no_goodput(shared, code):
    (code / "train.py").write_text(
        "import pathlib, sys, time\npathlib.Path(sys.argv[1]).touch()\ntime.sleep(600)\n"
    )
    up = code / "up"
    words = ["-m", r"loss=loss (\S+)", "--detach", "--", "python", "train.py", up]
    shared("run", "--name", "stepless", *words)
    until(up.exists, 60)
    shared("job", "cancel", "stepless")
    shared("job", "wait", "stepless")
    shown = shared("job", "show", "stepless").stdout
    assert "goodput     unknown: it ended before a metric or checkpoint reported a step" in shown
    told = json.loads(shared("report", "goodput", "stepless", "--json").stdout)
    assert (told["jobs"][0]["goodput"], told["jobs"][0]["stepless"]) == (None, True)
    shown = shared("report", "goodput", "stepless").stdout
    assert "stepless: no metric or checkpoint reported a step" in shown


def test_wrong_use(shared):
    for words, said in (
        ([], "jobs or an experiment are missing"),
        (["--experiment", "no such"], "no jobs in the experiment 'no such'"),
        (["nosuch"], "job 'nosuch' not found"),
    ):
        done = shared("report", "goodput", *words)
        assert (done.returncode, done.stdout) == (2, "")
        assert said in done.stderr
        assert "hint" in done.stderr


def test_a_summary_without_other_parts_has_no_brackets():
    spans = (Span(Activity.COMPUTING, 0.0, 100.0, 1), Span(Activity.FINALIZING, 100.0, 100.04, 1))
    assert summary(Goodput(spans)) == "100.0%"
    assert summary(Goodput((*spans, Span(Activity.HANG, 101.0, 126.0, 1)))) == "80.0% (hang 25.0 s)"
