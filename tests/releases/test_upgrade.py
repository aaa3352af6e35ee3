"""Another version is installed, by pip and in place, while jobs run."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.releases.installed import Installed
from tests.support import Allranks, answer, leave_nothing, until

# Of the agent and of what runs inside ranks: mostly imported when needed.
SPOILED = (
    *("allranks/agent/channel", "allranks/agent/launch", "allranks/agent/supervision"),
    *("allranks/agent/monitoring/stacks.py", "allranks/agent/monitoring/profiles.py"),
    *("allranks/agent/monitoring/failure_context.py", "allranks/agent/monitoring/inspection.py"),
    *("allranks/agent/state/sync.py", "allranks/agent/state/state_folder.py"),
    *("allranks/agent/inside/allranks_inspect.py", "allranks/agent/inside/allranks_profile.py"),
    *("allranks/agent/inside/sitecustomize.py", "allranks/agent/lifecycle"),
)
SCRIPT = """
import os, pathlib, sys, time
state = pathlib.Path(os.environ["ALLRANKS_STATE_DIR"], "attempts")
begun = state.read_text() if state.exists() else ""
state.write_text(begun + "x")
for number in range(200):
    print("before", number, flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
for number in range(200):
    print("after", number, flush=True)
kind = sys.argv[2]
if kind == "fails" or kind == "once" and not begun:
    raise SystemExit(3)
"""
LINES = "".join(f"{word} {number}\n" for word in ("before", "after") for number in range(200))
JOBS = {
    **{f"runs-{number}": ("runs", "-p", "1") for number in range(4)},
    **{f"fails-{number}": ("fails", "-p", "1") for number in range(3)},
    **{f"once-{number}": ("once", "--max-attempts", "2") for number in range(3)},
}


@pytest.mark.slow
def test_no_job_notices_that_another_version_was_installed(tmp_path: Path):
    home, code, go = tmp_path / "ho'me x", tmp_path / "code", tmp_path / "go"
    code.mkdir()
    (code / "train.py").write_text(SCRIPT)
    installed = Installed(tmp_path / "venv")
    installed.install("0.1.0")
    allranks = installed.command_line(home, code)
    try:
        for name, (kind, *options) in JOBS.items():
            command = ("python", "train.py", go, kind)
            done = allranks("run", "--detach", "--name", name, *options, "--", *command)
            assert done.returncode == 0, done.stderr
        until(lambda: all("before 199" in allranks("job", "logs", name).stdout for name in JOBS))
        installed.install("0.1.0", SPOILED)
        for name in JOBS:
            assert allranks("job", "exec", name, "--", "echo", name).stdout == f"{name}\n"
        stacks = allranks("job", "stacks", "runs-0")
        assert "train.py" in stacks.stdout, stacks.stderr
        profile = allranks("job", "profile", "runs-1", "--seconds", "1")
        assert profile.returncode == 0, profile.stderr
        installed.install("0.1.1")
        old = answer(allranks, "server", "status")
        assert allranks("job", "list").returncode != 0  # a command of another version
        new = answer(allranks, "server", "restart")
        assert (new["before"], new["version"], new["pid"]) == ("0.1.0", "0.1.1", old["pid"])
        go.touch()
        for name, (kind, *_) in JOBS.items():
            job = answer(allranks, "job", "wait", name, code=3 if kind == "fails" else 0)
            assert job["attempts"] == (2 if kind == "once" else 1), job
            assert kind != "fails" or job["error"]["reason"] == "RANK_EXITED", job
            for attempt in range(1, job["attempts"] + 1):
                logs = allranks("job", "logs", name, "--attempt", attempt)
                assert logs.stdout == LINES, (name, attempt, logs.stderr)
    finally:
        leave_nothing(home)


@pytest.mark.slow
def test_a_job_whose_copy_somebody_deletes_says_so(allranks: Allranks, home: Path, code: Path):
    (code / "train.py").write_text(SCRIPT)
    go = code.parent / "go"
    command = ("python", "train.py", go, "fails")
    assert allranks("run", "--detach", "--name", "broken", "--", *command).returncode == 0
    until(lambda: "before 199" in allranks("job", "logs", "broken").stdout)
    for copy in (home / "pinned").iterdir():
        shutil.rmtree(copy)
    go.touch()
    error = answer(allranks, "job", "wait", "broken", code=1)["error"]
    assert error["reason"] == "SETUP_FAILED", error
    assert str(home / "pinned") in error["message"], error
    assert "gc" in error["hint"], error
    # The next agent's start makes it again.
    assert allranks("run", "--", "echo", "next").stdout == "next\n"
