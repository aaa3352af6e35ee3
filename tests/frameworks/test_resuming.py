"""Scripts that checkpoint into their working folder, in the manners there are, resume as they are:
in the next attempt on the same node, on another node, and by `job restart`."""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.frameworks.environments import environment
from tests.support import Allranks, answer, command_line, kill_agents, leave_nothing, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPTS = Path(__file__).parent / "resuming"
WAYS = ["same node", "other node", "restart"]
PLAIN = [
    *("text_in_place", "json_renamed", "pickle_and_absolute_link", "sqlite_file"),
    *("numbered_and_pruned", "changed_code", "appended_log"),
]
TORCH = ["torch_in_place", "torch_newest_of_many", "torchrun_sample", "distributed_checkpoint"]
FRAMEWORKS = [
    *("numpy_archive", "safetensors_folder", "lightning_last", "lightning_logs"),
    *("trainer_output_dir", "accelerate_state"),
]
KERAS = ["keras_backup", "keras_checkpoint"]


@pytest.fixture(scope="module")
def resuming_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A home whose agents look at working folders often, and hold little of them."""
    path = tmp_path_factory.mktemp("resuming") / "h'ome"
    env = {"ALLRANKS_LOOK": "0.1", "ALLRANKS_WORK_LIMIT": "1m"}
    command_line(path, path.parent)("server", "start", env=env)
    yield path
    leave_nothing(path)


@pytest.fixture
def resuming(resuming_home: Path, code: Path) -> Allranks:
    for each in SCRIPTS.glob("*.py"):
        shutil.copy(each, code)
    (code / "settings.json").write_text("{}")
    (code / "first-run-only").touch()
    (code / ".gitignore").write_text("*.pt\n*.pth\n*.ckpt\ncheckpoints/\nlightning_logs/\nout/\n")
    return command_line(resuming_home, code)


def began(allranks: Allranks, job: str, attempt: int = 1) -> list[int]:
    """After which steps the ranks of an attempt began."""
    lines = allranks("job", "logs", job, "--attempt", attempt).stdout.splitlines()
    return [int(line.split()[3]) for line in lines if line.startswith("step ")]


def kill_rank(job: str, script: str) -> None:
    """End a rank of that script, and not a child that it forked, by SIGKILL."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            of_job = process.environ().get("ALLRANKS_JOB") == job
            if of_job and process.cmdline()[-1:] == [f"{script}.py"]:
                found.append(process)
    min(found, key=psutil.Process.create_time).kill()


def held(home: Path, job: str) -> int:
    """The last step after which the server has all files: none has changed for a while. Above the
    bound it has only what is said about them."""
    folder = home / "jobs" / job / "working-folder" / "0"
    try:
        head = json.loads((folder / "head").read_bytes().partition(b"\n")[2])
        about = head["entries"].get("node-0/about/work.json")
        is_above = about and json.loads((folder / "content" / about[1]).read_bytes())["over"]
        assert is_above or (folder / "unfinished.json").read_text() == "[]"
    except (FileNotFoundError, AssertionError):
        return 0
    return int(head["revision"])


def resumes(allranks: Allranks, home: Path, script: str, way: str, *more: object) -> str:
    """Stop a script after its third step; return the name of the job that goes on."""
    job = f"{script.replace('_', '-')}-{WAYS.index(way)}"
    attempts = 1 if way == "restart" else 2
    words = ("--name", job, "--max-attempts", attempts, "--detach", *more)
    ran = allranks("run", *words, "--", "python", f"{script}.py", timeout=120)
    assert ran.returncode == 0, ran.stderr
    until(lambda: "holding" in allranks("job", "logs", job).stdout, 90)
    if way == "other node":
        until(lambda: held(home, job) > 0, 30)
        kill_agents(home, job)
    else:
        kill_rank(job, script)
    allranks("job", "wait", job, timeout=120)
    if way == "restart":
        done = allranks("job", "restart", job, timeout=120)
        assert done.returncode == 0, done.stderr
        assert "continues from" in done.stderr
        job = f"{job}-r2"
        allranks("job", "wait", job, timeout=120)
    return job


def check(allranks: Allranks, home: Path, script: str, way: str, *more: object) -> None:
    job = resumes(allranks, home, script, way, *more)
    logs = allranks("job", "logs", job).stdout
    assert answer(allranks, "job", "show", job)["status"] == "Completed", logs
    found = began(allranks, job, 1 if way == "restart" else 2)
    assert found, logs
    assert set(found) <= {2, 3}, logs  # a framework saves before or after it says so


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("script", PLAIN)
def test_own_ways(resuming: Allranks, resuming_home: Path, script: str, way: str):
    check(resuming, resuming_home, script, way)


@pytest.mark.parametrize("way", WAYS)
def test_a_file_of_each_rank(resuming: Allranks, resuming_home: Path, way: str):
    check(resuming, resuming_home, "a_file_of_each_rank", way, "-p", 2)


@pytest.mark.parametrize("way", WAYS)
def test_above_the_bound(resuming: Allranks, resuming_home: Path, way: str):
    """On the same node nothing is copied. Elsewhere the job says that it cannot go on."""
    if way == "same node":
        check(resuming, resuming_home, "large_file", way)
    elif way == "restart":
        with pytest.raises(AssertionError, match="large-file-2 cannot be continued: its working"):
            resumes(resuming, resuming_home, "large_file", way)
    else:
        job = resumes(resuming, resuming_home, "large_file", way)
        error = answer(resuming, "job", "show", job)["error"]
        assert "attempt 2 cannot continue: its working folder has 1.2 MB" in error["message"]


@pytest.mark.torch
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("script", TORCH)
def test_torch(resuming: Allranks, resuming_home: Path, script: str, way: str):
    several = script in ("torchrun_sample", "distributed_checkpoint")
    check(resuming, resuming_home, script, way, *(("-p", 2) if several else ()))


@pytest.mark.frameworks
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("script", "kept"),
    [*((each, "torch") for each in FRAMEWORKS), *((each, "tensorflow") for each in KERAS)],
)
def test_frameworks(resuming: Allranks, resuming_home: Path, script: str, kept: str, way: str):
    def run(*words: object, **more: Any) -> subprocess.CompletedProcess[str]:
        return resuming(*words, env={"VIRTUAL_ENV": str(environment(kept))}, **more)

    check(run, resuming_home, script, way)
