"""`--warm`: ranks forked from a process that has imported their modules."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from tests.support import answer, until

pytestmark = pytest.mark.slow

PARENT = "import os; print(os.getppid())"


def events(allranks, job: str, kind: str) -> list[dict]:
    return [e for e in answer(allranks, "job", "events", job) if e["kind"] == kind]


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def servers(home: Path) -> list[int]:
    return [int(lock.read_text()) for lock in (home / "warm").glob("*.lock")]


@pytest.mark.end_to_end
def test_jobs_share_a_server_that_ends_with_the_home(allranks, home, code):
    (code / "s.py").write_text("import os, sys, json; print(sys.argv[1:], os.environ['RANK'])")
    words = ("-p", 2, "--warm", "json,decimal", "--env", "A=b c")
    first = allranks("run", "--name", "a", *words, "--", "python", "s.py", "x y", "$z")
    assert (first.returncode, sorted(first.stdout.splitlines())) == (
        0,
        ["['x y', '$z'] 0", "['x y', '$z'] 1"],
    )
    before = servers(home)
    second = allranks("run", "--name", "b", *words, "--", "python", "s.py")
    assert second.returncode == 0
    assert servers(home) == before
    # Not what `run` prints: such an import may be over before anybody has seen it.
    for job, imports in (("a", ["imports json, decimal once, for later ranks, too"]), ("b", [])):
        doing = [e["data"].get("doing", "") for e in events(allranks, job, "note")]
        assert [each for each in doing if each.startswith("imports")] == imports
    for job in ("a", "b"):
        assert [e["data"].get("warm") for e in events(allranks, job, "started")] == [2]
    assert allranks("server", "stop").returncode == 0
    assert [pid for pid in before if lives(pid)] == []


@pytest.mark.parametrize(("prefetch", "expected"), [("1", 1), ("0", 0)])
def test_a_starting_server_imports_what_the_last_job_imported(
    allranks, home, prefetch: str, expected: int
):
    env = {"ALLRANKS_WARM_PREFETCH": prefetch}
    words = ("--warm", "json", "--", "python", "-c", "pass")
    assert allranks("run", *words, env=env).returncode == 0
    assert allranks("server", "stop").returncode == 0
    assert list((home / "warm").glob("*.lock")) == []
    assert allranks("server", "start", env=env).returncode == 0
    if expected:
        until(lambda: list((home / "warm").glob("*.sock")))
        assert allranks("run", "--name", "first", *words, env=env).returncode == 0
        notes = [note["data"].get("doing", "") for note in events(allranks, "first", "note")]
        assert [text for text in notes if text.startswith("imports")] == []
    assert len(list((home / "warm").glob("*.lock"))) == expected


def test_what_cannot_start_warm_starts_cold_and_says_why(shared):
    nothing = shared("run", "--warm", "nothing_there", "--", "python", "-c", "print(1)")
    assert (nothing.returncode, nothing.stdout) == (0, "1\n")
    why = "note: ranks start cold: ModuleNotFoundError: No module named 'nothing_there'"
    assert why in nothing.stderr
    words = ("--name", "warm-not", "-p", 2, "--max-attempts", 2, "--warm", "json")
    shell = shared("run", *words, "--", "bash", "-c", "echo $RANK; exit 3")
    assert shell.returncode == 3
    notes = [e for e in events(shared, "warm-not", "note") if e["data"].get("about") == "warm"]
    assert len(notes) == 1  # not for each rank and attempt
    assert (
        "ranks start cold: the command does not start with `python` but with `bash`" in shell.stderr
    )
    several = shared("run", "--warm", "a", "--warm", "b,c", "--dry-run", "--json", "--", "true")
    assert json.loads(several.stdout)["task"]["warm"] == ["a", "b", "c"]
    wrong = shared("run", "--warm", "a b", "--", "true")
    assert (wrong.returncode, "must be the name of a Python module" in wrong.stderr) == (2, True)


def test_a_restart_starts_warm_again(shared):
    script = "import os, sys; sys.exit(7 if os.environ['ALLRANKS_ATTEMPT'] == '1' else 0)"
    words = ("--name", "warm-again", "--max-attempts", 2, "--warm", "json")
    assert shared("run", *words, "--", "python", "-c", script).returncode == 0
    assert [e["data"]["warm"] for e in events(shared, "warm-again", "started")] == [1, 1]


def test_a_sweep_starts_its_trials_warm(shared, code):
    (code / "s.py").write_text("import sys; print('x:', float(sys.argv[1]))")
    words = (
        "--sweep",
        "x=choice(1, 2)",
        "-m",
        "x=x: ([0-9.]+)",
        "--minimize",
        "x",
        "--warm",
        "json",
    )
    done = shared(
        "run", "--name", "warm-trials", *words, "--", "python", "s.py", "${{search_space.x}}"
    )
    assert done.returncode == 0, done.stderr
    assert [e["data"]["warm"] for e in events(shared, "warm-trials_1", "started")] == [1]


def test_a_pipeline_starts_its_steps_warm(shared, code):
    step = {"type": "command", "command": "python -c 'print(1)'", "warm": ["json"]}
    job = {"type": "pipeline", "name": "warm-steps", "jobs": {"one": step, "two": step}}
    (code / "pipeline.yml").write_text(json.dumps(job))
    done = shared("job", "create", "-f", "pipeline.yml", "--stream")
    assert done.returncode == 0, done.stderr
    steps = [job["name"] for job in answer(shared, "job", "list", "--parent", "warm-steps")]
    assert len(steps) == 2
    for each in steps:
        assert [e["data"]["warm"] for e in events(shared, each, "started")] == [1]


def test_a_job_whose_modules_do_not_get_imported_can_be_canceled(shared, code):
    (code / "hangs.py").write_text("import time; time.sleep(1000)")
    words = ("--name", "warm-hangs", "--env", f"PYTHONPATH={code}", "--warm", "hangs", "--detach")
    assert shared("run", *words, "--", "python", "-c", "1").returncode == 0
    until(lambda: any("imports hangs" in str(e) for e in events(shared, "warm-hangs", "note")))
    assert shared("job", "cancel", "warm-hangs").returncode == 0
    until(lambda: answer(shared, "job", "show", "warm-hangs")["status"] == "Canceled")
    limited = ("--timeout", 1, "--env", f"PYTHONPATH={code}", "--warm", "hangs")
    done = shared("run", *limited, "--", "python", "-c", "1")
    why = "ranks start cold: importing takes longer than 1 seconds, the job's timeout"
    assert (done.returncode, why in done.stderr) == (0, True)


def test_canceling_ends_warm_ranks(shared, code):
    (code / "s.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    words = ("--name", "warm-canceled", "--warm", "json", "--detach")
    assert shared("run", *words, "--", "python", "s.py").returncode == 0
    until(lambda: shared("job", "logs", "warm-canceled").stdout.strip())
    pid = int(shared("job", "logs", "warm-canceled").stdout)
    assert psutil.Process(pid).cmdline() == ["python", "s.py"]
    assert shared("job", "cancel", "warm-canceled").returncode == 0
    until(lambda: answer(shared, "job", "show", "warm-canceled")["status"] == "Canceled")
    assert not lives(pid)


def test_a_killed_agent_takes_its_warm_ranks_along(shared, shared_home, code):
    (code / "s.py").write_text("import os, time; print(os.getpid(), flush=True); time.sleep(1000)")
    words = ("--name", "warm-orphan", "--warm", "json", "--detach")
    assert shared("run", *words, "--", "python", "s.py").returncode == 0
    until(lambda: shared("job", "logs", "warm-orphan").stdout.strip())
    pid = int(shared("job", "logs", "warm-orphan").stdout)
    agent = events(shared, "warm-orphan", "hello")[0]["data"]["pid"]
    os.kill(agent, signal.SIGKILL)
    until(lambda: answer(shared, "job", "show", "warm-orphan")["status"] == "Failed")
    assert not lives(pid)


def test_a_job_that_ends_leaves_the_warm_ranks_of_another(allranks, home, code):
    """Also where agents cannot reach the process that starts servers outside of their jobs."""
    script = "import os, time; print('runs', flush=True)\n"
    script += "while not os.path.exists(os.environ['END']): time.sleep(0.01)"
    (code / "s.py").write_text(script)
    assert allranks("run", "--name", "before", "--", "true").returncode == 0
    (home / "warm" / "start.sock").unlink()
    for job in ("first", "second"):
        words = ("--name", job, "--env", f"END={code / job}", "--warm", "json", "--detach")
        assert allranks("run", *words, "--", "python", "s.py").returncode == 0
        until(lambda job=job: allranks("job", "logs", job).stdout == "runs\n")
        assert [e["data"].get("warm") for e in events(allranks, job, "started")] == [1]
    for job in ("first", "second"):
        (code / job).touch()
        done = allranks("job", "wait", job)
        assert done.returncode == 0, done.stdout + done.stderr


def test_a_layer_of_an_environment_is_the_ranks_own(shared, code):
    """A rank's `sys` and `VIRTUAL_ENV` name its own layer; the server is shared."""
    (code / "s.py").write_text(
        "import os, sys\n"
        "print(sys.prefix == os.environ['VIRTUAL_ENV'], sys.executable.startswith(sys.prefix))"
    )
    (code / "e.txt").write_text("")
    for name in ("warm-layer-1", "warm-layer-2"):
        done = shared(
            "run", "--name", name, "-e", "e.txt", "--warm", "json", "--", "python", "s.py"
        )
        assert (done.returncode, done.stdout) == (0, "True True\n"), done.stderr
        assert [e["data"].get("warm") for e in events(shared, name, "started")] == [1]
    assert "imports json" not in done.stderr


def test_a_job_file_may_ask_for_it(shared, code):
    job = {"command": "python -c 'print(3)'", "warm": ["json"], "name": "warm-file"}
    (code / "job.yml").write_text(json.dumps(job))
    assert shared("job", "create", "-f", "job.yml", "--stream").returncode == 0
    assert [e["data"]["warm"] for e in events(shared, "warm-file", "started")] == [1]
