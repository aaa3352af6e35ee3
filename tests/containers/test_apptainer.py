"""Jobs with an image under a real apptainer, where this machine has one that works."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.containers import registry
from tests.containers.conftest import APPTAINER, IMAGE, Podman
from tests.containers.test_containers import ended
from tests.support import Allranks, until

pytestmark = [pytest.mark.slow, pytest.mark.containers, pytest.mark.timeout(400)]
SLEEP = f"400.{os.getpid()}"


@pytest.fixture
def here(
    image_file: Path, allranks: Allranks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Allranks]:
    for name, value in APPTAINER.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("APPTAINER_CACHEDIR", str(tmp_path / "cache"))
    done = allranks("compute", "update", "local", "--container", "apptainer")
    assert done.returncode == 0, done.stderr
    yield allranks
    allranks("server", "stop")
    assert not sleepers()


def sleepers() -> list[psutil.Process]:
    every = psutil.process_iter(["cmdline"])
    return [each for each in every if each.info["cmdline"] == ["sleep", SLEEP]]


def begin(here: Allranks, name: str, image_file: Path) -> None:
    line = f"setsid sleep {SLEEP} & trap 'echo saved >outputs/saved; exit' TERM; echo up; wait"
    here("run", "--detach", "--name", name, "--image", image_file, "--", "bash", "-c", line)
    until(lambda: "up" in here("job", "logs", name).stdout, 30)


def test_ranks_run_in_the_image(here: Allranks, image_file: Path, tmp_path: Path):
    """With data and results at the same paths, a process table of their own and room to write."""
    data, results = tmp_path / "da,ta:1 'q\"", tmp_path / "re,s'u"
    data.mkdir()
    (data / "x y").write_text("42\n")
    line = (
        'echo "$FROM_IMAGE $RANK $WORLD_SIZE $NODE_RANK"; [ $$ -lt 100 ] && echo own; '
        'cat "$AZURE_ML_INPUT_d/x y"; (echo no >"$AZURE_ML_INPUT_d/new") 2>/dev/null || echo kept; '
        'echo "$HOME_MADE" >"$AZURE_ML_OUTPUT_o/$RANK"; echo 1 >/tmp/x && echo 2 >~/y && echo room'
    )
    odd = "a 'b' \"c\" $HOME\nd"
    words = ("-i", f"d={data}", "-o", f"o={results}", "--env", f"HOME_MADE={odd}")
    done = here("run", "-n", 2, "-p", 2, "--image", image_file, *words, "--", "bash", "-c", line)
    assert done.returncode == 0, done.stderr
    told = done.stdout.splitlines()
    seen = [f"yes {rank} 4 {rank // 2}" for rank in range(4)]
    assert sorted(line for line in told if line.startswith("yes")) == seen
    for line in ("own", "42", "kept", "room"):
        assert told.count(line) == 4, told
    assert [(results / str(rank)).read_text() for rank in range(4)] == [odd + "\n"] * 4


def test_a_rank_that_fails_is_named(here: Allranks, image_file: Path):
    line = 'if [ "$RANK" = 1 ]; then echo oops >&2; exit 3; fi; sleep 300'
    done = here("run", "-n", 2, "--image", image_file, "--", "bash", "-c", line)
    assert done.returncode == 3
    assert "rank 1 on node 1 exited with code 3; its last line: oops" in done.stderr


def test_a_canceled_job_has_its_grace_and_leaves_nothing(here: Allranks, image_file: Path):
    begin(here, "saves", image_file)
    assert here("job", "cancel", "saves").returncode == 0
    job = ended(here, "saves")
    assert job["status"] == "Canceled"
    assert Path(job["folder"], "artifacts", "outputs", "saved").read_text() == "saved\n"
    assert not sleepers()


@pytest.mark.parametrize("whose", ["the agent", "the container's program"])
def test_nothing_outlives_what_is_killed(here: Allranks, image_file: Path, whose: str):
    begin(here, "killed", image_file)
    above = sleepers()[0].parents()
    is_it = {"the agent": "allranks.agent", "the container's program": "apptainer"}[whose]
    found = [each for each in above if is_it in " ".join([each.name(), *each.cmdline()]).lower()]
    found[0 if whose == "the agent" else -1].send_signal(signal.SIGKILL)
    job = ended(here, "killed")
    assert job["status"] == "Failed"
    until(lambda: not sleepers(), 15)
    gone = "the container of node 0 ended, with all processes in it"
    assert (job["error"]["message"] == gone) == (whose != "the agent")


def test_an_image_of_a_registry_is_pulled_once(here: Allranks, podman: Podman, tmp_path: Path):
    podman("push", "--quiet", IMAGE, f"dir:{tmp_path / 'pushed'}")
    with registry.serving(tmp_path / "pushed") as (name, gate):
        gate.set()
        words = ("run", "-n", 2, "--image", f"{name}:1", "--", "bash", "-c", "echo $FROM_IMAGE")
        done = here(*words, timeout=150)
        assert (done.returncode, done.stdout) == (0, "yes\nyes\n"), done.stderr
    done = here(*words)
    assert (done.returncode, done.stdout) == (0, "yes\nyes\n"), done.stderr
    assert len(list((tmp_path / "cache" / "allranks").iterdir())) == 1


def test_what_cannot_be_is_told_in_one_sentence(here: Allranks, image_file: Path, tmp_path: Path):
    def told(*words: object) -> str:
        done = here("run", *words, "--", "true")
        assert (done.returncode != 0, "Traceback" in done.stderr) == (True, False), done.stderr
        assert "hint: " in done.stderr
        return done.stderr

    assert "image /nowhere/a.sif not found" in told("--image", "/nowhere/a.sif")
    bad = tmp_path / "bad.sif"
    bad.write_text("no image")
    assert "apptainer cannot start the container: " in told("--image", bad)
    args = "resources.docker_args=--nonsense"
    assert "unknown flag: --nonsense" in told("--image", image_file, "--set", args)
    before = {*Path(tempfile.gettempdir()).glob("allranks-*-build-*")}
    assert "cannot pull the image" in told("--image", "127.0.0.1:1/nowhere:1")
    assert {*Path(tempfile.gettempdir()).glob("allranks-*-build-*")} <= before
