"""`--rehearse` with real jobs: a rank is really killed, and what is said of it is so."""

import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from tests.counting import SCRIPT, STEP
from tests.support import CLI, Allranks, answer, command_line, environment, leave_nothing, until

ROOT = Path(__file__).parents[2]
LOSS = r"loss (\S+)"
SPEED = r"step (?P<step>\d+) .* speed (?P<value>\S+)"


@pytest.fixture(scope="module")
def quick_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose agents look at their states often."""
    path = tmp_path_factory.mktemp("quick") / "h'ome $(x)"
    command_line(path, path.parent)("server", "start", env={"ALLRANKS_LOOK": "0.1"})
    yield path
    leave_nothing(path)


@pytest.fixture
def quick(quick_home: Path, code: Path) -> Allranks:
    (code / "count.py").write_text(SCRIPT)
    return command_line(quick_home, code)


def rehearse(quick: Allranks, how: str, *words: object, steps: int = 600, metric: str = STEP):
    asked = ("-m", f"loss={metric}", *words, "--", "python", "count.py", how, steps)
    return quick("run", "--rehearse", *asked, timeout=100)


def begun(home: Path, code: Path, script: str, *words: str) -> "subprocess.Popen[str]":
    """A rehearsal of that script of bash's, on its way."""
    argv = [sys.executable, "-c", CLI, "run", "--rehearse", "-m", f"loss={STEP}", *words]
    return subprocess.Popen(
        [*argv, "--", "bash", "-c", script],
        env=environment(home),
        cwd=code,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def jobs(allranks: Allranks) -> dict[str, str]:
    told = answer(allranks, "job", "list")
    return {each["name"]: each["status"] for each in told}


@pytest.mark.slow
def test_an_exact_resume_is_verified_and_leaves_nothing(quick, tmp_path):
    (tmp_path / "model").mkdir()
    keep = 'echo mine > "$ALLRANKS_STATE_DIR/at.json"'
    assert quick("run", "--state", "birds", "--", "bash", "-c", keep).returncode == 0
    words = ("-n", 2, "--state", "birds", "-o", f"model={tmp_path / 'model'}", "--json")
    done = rehearse(quick, "well", "-m", f"speed={SPEED}", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert (told["verdict"], told["verified"], told["rank"]) == ("exact", True, 1)
    assert re.fullmatch(
        r"resume verified: exact; (no step was|1 step was|\d+ steps were) repeated",
        told["sentence"],
    )
    assert told["again"] == told["last"] - told["first"] + 1
    assert (told["first"] - 1) % 10 == 0
    assert told["compared"] >= 10
    assert [*told["left_out"]] == ["speed"]
    assert 0 < told["seconds"] < 60
    assert "note: ignored, because the two runs differ before the kill: speed" in done.stderr
    for said in ("has written a checkpoint: 1 file", "killing rank 1", "training again after"):
        assert said in done.stderr
    assert {jobs(quick)[told[which]] for which in ("killed", "uninterrupted")} == {"Canceled"}
    killed = answer(quick, "job", "show", told["killed"])
    assert (killed["attempts"], killed["tags"]) == (2, {"rehearsal": "resume"})
    (asked,) = [
        each
        for each in answer(quick, "job", "events", told["killed"])
        if each["kind"] == "kill_asked"
    ]
    assert (asked["node"], asked["rank"], "@" in asked["data"]["by"]) == (1, 1, True)
    # The user's own state and output are as they were; those of the two jobs are gone.
    assert quick("state", "list", "--own", "--json").stdout.strip() == "[]"
    (birds,) = answer(quick, "state", "list")
    assert (birds["name"], birds["version"]) == ("birds", 1)
    assert [*(tmp_path / "model").iterdir()] == []


@pytest.mark.slow
def test_a_checkpoint_in_the_working_folder(quick):
    line = "mkdir -p checkpoints; ALLRANKS_STATE_DIR=checkpoints exec python count.py {} 600"
    for how, said in (("well", "resume verified: exact"), ("zero", "resume not verified: starts")):
        words = ("-m", f"loss={STEP}", "--", "bash", "-c", line.format(how))
        done = quick("run", "--rehearse", *words, timeout=100)
        assert done.stdout.startswith(said), done.stdout + done.stderr
        assert "of the working folder, newest checkpoints/at.json" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "exit_code", "said"),
    [
        ("noise", 0, "resume verified: within tolerance (the largest difference is "),
        ("wrong", 1, "resume not verified: continues differently: at step "),
        ("zero", 1, "resume not verified: starts from zero: a checkpoint existed at step "),
        (
            "crash",
            1,
            "resume not verified: fails to resume: rank 0 on node 0 exited with code 1:"
            " cannot? read that",
        ),
    ],
)
def test_verdicts(quick, how, exit_code, said):
    done = rehearse(quick, how)
    assert done.stdout.startswith(said), done.stdout + done.stderr
    assert (done.returncode, "hint: " in done.stderr) == (exit_code, bool(exit_code))
    assert ("not bitwise reproducible" in done.stderr) is (how == "noise")
    assert "Running" not in jobs(quick).values()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "steps", "metric", "said"),
    [
        (
            "forgetful",
            5,
            STEP,
            "no checkpoint was written: the job ended with an empty state",
        ),
        ("well", 40, LOSS, "no metric has steps"),
        ("well", 11, STEP, "not enough data to compare: the job ended before a rank"),
        ("well", "no number", STEP, "ended too early"),
    ],
)
def test_what_is_missing_for_a_verdict(quick, how, steps, metric, said):
    done = rehearse(quick, how, steps=steps, metric=metric)
    assert done.returncode == 1
    assert done.stdout.startswith(f"resume not verified: {said}"), done.stdout + done.stderr
    assert quick("state", "list", "--own", "--json").stdout.strip() == "[]"


@pytest.mark.slow
def test_a_second_attempt_without_steps_is_not_compared(quick):
    script = """
        [ ! -e "$ALLRANKS_STATE_DIR/x" ] || exit 0
        echo x > "$ALLRANKS_STATE_DIR/x"
        for ((n = 0; n < 600; n++)); do echo "step $n loss 1"; sleep 0.05; done
    """
    done = quick("run", "--rehearse", "-m", f"loss={STEP}", "--", "bash", "-c", script)
    said = "ended too early: its second attempt ended without logging a step"
    assert done.stdout == f"resume not verified: {said}\n", done.stderr
    assert "-uninterrupted" not in done.stderr


@pytest.mark.slow
def test_a_canceled_second_attempt_is_not_a_fault_of_the_script(quick, quick_home, code):
    script = """
        if [ -e "$ALLRANKS_STATE_DIR/x" ]; then sleep 100; fi
        echo x > "$ALLRANKS_STATE_DIR/x"
        for ((n = 0; n < 600; n++)); do echo "step $n loss 1"; sleep 0.05; done
    """
    with begun(quick_home, code, script) as started:
        (name, *_) = started.stderr.readline().split(":")
        until(lambda: answer(quick, "job", "show", name)["attempts"] == 2)
        quick("job", "cancel", name)
        out, _ = started.communicate(timeout=120)
    assert out == "resume not verified: ended too early: the job was canceled\n"


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_cancels_its_job_and_deletes_its_state(quick, quick_home, code, number):
    # No step is ever told of: it would wait for some.
    started = begun(quick_home, code, 'echo x > "$ALLRANKS_STATE_DIR/x"; sleep 100')
    (name, *_) = started.stderr.readline().split(":")
    until(lambda: answer(quick, "job", "show", name)["state"]["version"])
    started.send_signal(number)
    started.send_signal(signal.SIGTERM)  # as `timeout` does: one to the process, one to its group
    out, err = started.communicate(timeout=120)
    assert (started.returncode, out) == (130, "")
    assert err.endswith("rehearsal interrupted; its jobs are canceled\n")
    assert jobs(quick)[name] == "Canceled"
    assert quick("state", "list", "--own", "--json").stdout.strip() == "[]"


@pytest.mark.slow
def test_an_interrupted_clean_up_is_finished(quick, quick_home, code):
    """Whose ranks do not listen has to wait for their end: its state goes after that."""
    deaf = 'trap "" TERM; echo x > "$ALLRANKS_STATE_DIR/x"; while :; do sleep 0.2; done'
    with begun(quick_home, code, deaf, "--set", "limits.grace=6") as started:
        (name, *_) = started.stderr.readline().split(":")
        until(lambda: answer(quick, "job", "show", name)["state"]["version"])
        started.send_signal(signal.SIGINT)
        for line in started.stderr:
            if "its ranks have the grace period to end" in line:
                break
        started.send_signal(signal.SIGINT)
        started.communicate(timeout=120)
    assert started.returncode == 130
    assert jobs(quick)[name] == "Canceled"
    assert quick("state", "list", "--own", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--rehearse", "--in-place"), "a rehearsal runs the job twice"),
        (("--rehearse", "--detach"), "a rehearsal cannot be detached"),
        (("--rehearse", "--tolerance", "nan"), "nan is not a tolerance"),
        (("--tolerance", "0.1"), "--tolerance needs --rehearse"),
    ],
)
def test_options_that_exclude_a_rehearsal(shared, words, said):
    done = shared("run", *words, "--", "true")
    assert (done.returncode, said in done.stderr) == (2, True)
    assert "hint: " in done.stderr


@pytest.mark.medium
def test_a_dry_run_shows_the_job_that_would_be_killed(allranks):
    done = allranks("run", "--rehearse", "--dry-run", "--json", "--state", "birds", "--", "true")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["task"]["state"], told["rules"]["max_attempts"]) == ("", 2)


SDK = """
import io, json, sys
from allranks import Client, command
from allranks.sdk.submit import rehearsal as rehearsing
rehearsing._PATIENCE = 5.0
told = io.StringIO()
job = command(command=f"python count.py {sys.argv[2]} 600", code=".", metrics={"loss": sys.argv[1]})
found = Client().jobs.rehearse(job, to=told)
print(json.dumps([found.verified, found.sentence, found.uninterrupted, told.getvalue()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "found"),
    [
        ("zero", "starts from zero"),
        ("hang", r"no step was logged in \d+ s"),  # with less patience than for a user's
    ],
)
def test_rehearsing_from_python(quick, quick_home, code, how, found):
    argv = [sys.executable, "-c", SDK, STEP, how]
    done = subprocess.run(argv, env=environment(quick_home), cwd=code, capture_output=True)
    verified, sentence, uninterrupted, said = json.loads(done.stdout)
    assert (verified, uninterrupted) == (False, "")
    assert re.search(found, sentence), sentence
    assert "killing rank 0" in said


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.timeout(900)
def test_the_example_resumes_exactly(quick, code):
    shutil.copytree(ROOT / "examples" / "resume", code / "resume")
    words = ("-f", "resume/job.yml", "--set", "command=python train.py --epochs 3000")
    metric = ("--set", r"metrics.loss=epoch (?P<step>\d+) loss (?P<value>\S+)")
    done = quick("job", "create", "--rehearse", *words, *metric, timeout=280)
    assert done.stdout.startswith("resume verified: exact; "), done.stdout + done.stderr
    assert "killing rank 1" in done.stderr


# Saves as `torch.save` and a pointer to it do, at 2.5 s, for 15 s in all.
SLOW = """
import os, time
from pathlib import Path
folder = Path(os.environ["ALLRANKS_STATE_DIR"])
latest = folder / "latest"
at = int(latest.read_text()) if latest.exists() else 0
for step in range(at + 1, 61):
    time.sleep(0.25)
    print(f"step {step} loss {1 / step!r}", flush=True)
    if step % 10 == 0:
        with (folder / "weights").open("wb") as file:
            for part in range(5):
                file.write(b"x" * 100_000)
                file.flush()
                time.sleep(0.1)
        (folder / "new").write_text(str(step))
        (folder / "new").replace(latest)
        print(f"saved at {time.time()!r}", flush=True)
"""


@pytest.mark.slow
def test_a_rank_is_killed_soon_after_the_first_checkpoint_at_the_usual_pace(allranks, code):
    (code / "slow.py").write_text(SLOW)
    words = ("--rehearse", "--json", "-m", f"loss={STEP}", "--", "python", "slow.py")
    found = json.loads(allranks("run", *words, timeout=100).stdout)
    assert (found["verified"], found["verdict"]) == (True, "exact"), found
    told = answer(allranks, "job", "events", found["killed"])
    (asked,) = (each for each in told if each["kind"] == "kill_asked")
    log = allranks("job", "logs", found["killed"], "--attempt", 1).stdout
    saved = float(re.findall(r"saved at (\S+)", log)[0])
    # Two seconds; as many again for a machine with other work to do.
    assert datetime.fromisoformat(asked["at"]).timestamp() - saved < 4.0


# A checkpoint of two files, the second of which takes its time.
PARTS = """
import os, time
from pathlib import Path
folder = Path(os.environ["ALLRANKS_STATE_DIR"])
names = [folder / name for name in ("model", "optimizer")]
found = [name.read_bytes() if name.exists() else b"" for name in names]
assert len(found[0]) == len(found[1]) // 15, f"half a checkpoint: {[len(e) for e in found]}"
for step in range(1 + 20 * bool(found[0]), 120):
    time.sleep(0.1)
    print(f"step {step} loss {1 / step!r}", flush=True)
    if step == 20:
        names[0].write_bytes(b"x" * 1000)
        with names[1].open("wb") as file:
            for part in range(15):
                file.write(b"y" * 1000)
                file.flush()
                time.sleep(0.1)
"""


@pytest.mark.slow
def test_no_rank_is_killed_while_a_checkpoint_is_being_written(allranks, code):
    # At the usual pace: a busy machine may pause longer than a quick one waits between two parts.
    (code / "parts.py").write_text(PARTS)
    words = ("--rehearse", "-m", f"loss={STEP}", "--", "python", "parts.py")
    done = allranks("run", *words, timeout=100)
    assert "resume verified: exact" in done.stdout, done.stdout + done.stderr
