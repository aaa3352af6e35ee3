"""The phases of a job on a terminal: the line at the bottom, and how long each one took."""

import json
import re
import subprocess
import sys

import pytest

from allranks.cli.output.phases import Phases
from allranks.core.lifecycle import decide, phases
from allranks.core.lifecycle.fold import fold
from allranks.core.lifecycle.phases import Current, Phase
from allranks.core.packing import pack, unpack
from allranks.events import Event, Kind
from allranks.statuses import JobStatus
from tests.cli.test_progress_bars import Screen
from tests.support import CLI, environment, until
from tests.wheels import wheel

PLACE = {"address": "127.0.0.2", "host": "here", "ports": [1]}


def told(job, *events):
    for seq, (kind, data) in enumerate(events, 1):
        node = None if kind in (Kind.SUBMITTED, Kind.GO, Kind.CLOSING) else 0
        job = fold(job, Event(kind, 100.0 + seq, node=node, seq=seq if node == 0 else 0, data=data))
    return job


def test_the_phase_of_a_job():
    job = decide.new(1)
    assert phases.current(job, 99.0) == (Phase.QUEUED, 99.0)
    job = told(job, (Kind.SUBMITTED, {}), (Kind.HELLO, {}))
    assert phases.current(job, 99.0) == (Phase.PREPARING, 102.0)
    late = {"phase": "environment", "since": 90.0, "doing": "installs torch"}
    slow = told(job, (Kind.NOTE, {}), (Kind.NOTE, {}), (Kind.NOTE, late))
    assert phases.current(slow, 99.0) == (Phase.ENVIRONMENT, 90.0)
    assert slow.nodes[0].doing == "installs torch"
    # An agent of another version, or a job with its token, may name what we do not know.
    odd = slow._replace(nodes=(slow.nodes[0]._replace(phase="dancing"),))
    assert phases.current(odd, 99.0) == (Phase.PREPARING, 102.0)
    assert unpack(decide.Job, json.loads(json.dumps(pack(slow)))) == slow
    ended = slow._replace(status=JobStatus.COMPLETED)
    assert phases.current(ended, 99.0) is None
    running = slow._replace(status=JobStatus.RUNNING, went_at=120.0)
    assert phases.current(running, 99.0) == Current(Phase.RUNNING, 120.0)


def test_what_is_said_of_them():
    now = 1000.0
    shown = Phases(lambda: now)

    def tell(name, seconds=None):
        return shown.changed({"name": name, "seconds": seconds})

    job = {"name": "otter", "status": "Preparing", "status_reason": "node 0 installs torch"}
    assert tell("queued", 2.0) == ""
    now += 3
    assert tell("preparing") == "queued (5.0 s)"
    now += 0.5
    assert tell("environment", 0.4) == ""
    now += 12
    assert shown.text(job) == "otter Preparing, environment (12 s): node 0 installs torch"
    assert tell("environment", 12.4) == ""
    assert tell("preparing", 12.9) == "environment ready (12.4 s)"
    now += 0.9
    assert tell("running", 0.0) == ""  # of no second it is said twice that it passed
    now += 75
    job |= {"status": "Running", "status_reason": None}
    assert shown.text(job) == "otter Running (1 min 15 s)"
    assert tell("finalizing", 0.0) == ""
    assert shown.changed(None) == ""


def test_a_phase_that_failed_is_not_ready():
    now = 0.0
    shown = Phases(lambda: now)
    shown.changed({"name": "environment", "seconds": 0.0})
    now = 9.0
    assert shown.changed({"name": "finalizing", "seconds": 0.0}) == ""


SLOW = """
import pathlib, shutil, time
def build_wheel(folder, *rest):
    while not pathlib.Path({go!r}).exists():
        time.sleep(0.01)
    found = next(pathlib.Path({wheels!r}).glob("apple-1*.whl"))
    return shutil.copy(found, folder).rpartition("/")[2]
"""


def source(folder, wheels, go):
    """A package that is built once ``go`` is there."""
    made = folder / "apple-1.0"
    made.mkdir()
    (made / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n'
        '[project]\nname = "apple"\nversion = "1.0"\n'
    )
    (made / "slow.py").write_text(SLOW.format(go=str(go), wheels=str(wheels)))
    subprocess.run(["tar", "czf", "apple-1.0.tar.gz", "apple-1.0"], cwd=folder, check=True)


@pytest.mark.slow
def test_a_terminal_shows_the_phases_of_a_run(shared_home, code, tmp_path):
    go, folder = tmp_path / "go", tmp_path / "sources"
    folder.mkdir()
    wheels = tmp_path / "wheels"
    wheel(wheels, "apple")
    source(folder, wheels, go)
    (code / "requirements.txt").write_text(f"--no-index\n--find-links {folder}\napple\n")
    script = f"echo begun; while ! test -e '{tmp_path}/end'; do sleep 0.05; done; echo over"
    words = ["run", "--name", "phased", "-e", "requirements.txt", "--", "bash", "-c", script]
    screen = Screen(columns=100)
    env = {**environment(shared_home), "TERM": "xterm", "NO_COLOR": "1"}
    argv = [sys.executable, "-c", CLI, *words]
    process = subprocess.Popen(
        argv, cwd=code, env=env, stdin=screen.other, stdout=screen.other, stderr=screen.other
    )

    def seen(pattern):
        return any(re.match(pattern, line) for line in screen.seen)

    try:
        until(lambda: seen(r"phased Preparing, environment \([1-9] s\)"))
        go.touch()
        until(lambda: "rank 0 | begun" in screen.lines)
        until(lambda: seen(r"phased Running \([1-9] s\)"))
        (tmp_path / "end").touch()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    until(lambda: screen.lines[-1] == "")
    left = "\n".join(screen.lines)
    assert re.search(r"^environment ready \([1-9]\.\d s\)$", left, re.MULTILINE), left
    assert "rank 0 | begun\nrank 0 | over\n" in left
    assert not re.search("phased (Preparing|Running)", left)


@pytest.mark.slow
def test_a_pipe_is_told_what_it_was_told_before(allranks):
    """Byte for byte: nothing of phases, however long they take."""
    done = allranks("run", "--name", "piped", "--", "bash", "-c", "echo a; sleep 1.2; echo b")
    assert done.stdout == "a\nb\n"
    said = re.sub(r"after \d\.\d s", "after T", done.stderr)
    # With the extra `[ui]` also the address of its page.
    page = r"(, http://127\.0\.0\.1:\d+/ui/jobs/piped)?"
    assert re.fullmatch(f"piped: 1 node, 1 rank{page}\npiped: Completed after T\n", said)
    events = allranks("job", "events", "piped").stdout
    assert "phase" not in events
