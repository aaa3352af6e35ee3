"""`kill -9` of a rank, an agent, its keeper, all of them, or the server, at moments drawn by seed.

After each: the job has ended with the true word, every line that was printed is there once and in
order, and no process of the job is left.
"""

import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from allranks.engines.local.end_gang import marked
from allranks.engines.local.engine import LocalEngine
from tests.support import Allranks, command_line, leave_nothing, until

RANKS = 3
LINES = 120
SCRIPT = (
    "(setsid sleep 600 &); (setsid bash -c 'setsid sleep 600 & wait' &); "
    f"for i in $(seq {LINES}); do echo $RANK $i; sleep 0.03; done"
)


@pytest.fixture(scope="module")
def chaos_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("chaos") / "home"
    yield path
    leave_nothing(path)


@pytest.fixture
def run(chaos_home: Path, tmp_path: Path) -> Allranks:
    return command_line(chaos_home, tmp_path)


def of_job(home: Path, job: str) -> list[int]:
    return of_launch(home, job, 1)


def of_launch(home: Path, job: str, launch: int) -> list[int]:
    """What runs of it."""
    engine, key = LocalEngine(home / "engines" / "local", home / "nodes"), f"{job}.{launch}"
    return marked(engine.mark(key), home / "engines" / "local" / key)


def is_agent(pid: int) -> bool:
    try:
        return any("allranks.agent" in word for word in psutil.Process(pid).cmdline())
    except psutil.Error:
        return False


def is_child_of(pid: int, parents: list[int]) -> bool:
    try:
        process = psutil.Process(pid)
        return process.ppid() in parents and process.name() == "bash"
    except psutil.Error:
        return False


def victims(home: Path, job: str, what: str, dice: random.Random) -> list[int]:
    if what == "server":
        return [json.loads((home / "server.json").read_text())["pid"]]
    everyone = of_job(home, job)
    agents = [pid for pid in everyone if is_agent(pid)]
    keepers = [pid for pid in agents if psutil.Process(pid).ppid() not in agents]
    chosen = {
        "rank": [pid for pid in everyone if pid not in agents and is_child_of(pid, agents)],
        "agent": [pid for pid in agents if pid not in keepers],
        "keeper": keepers,
        "keeper and agent": agents,
    }[what]
    if what == "keeper and agent":
        return agents
    return [dice.choice(chosen)] if chosen else []


def kill(pids: list[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("what", ["rank", "agent", "keeper", "keeper and agent", "server"])
def test_kill(run: Allranks, chaos_home: Path, what: str, seed: int) -> None:
    dice = random.Random(f"{what} {seed}")
    name = run("run", "--detach", "-n", RANKS, "--", "bash", "-c", SCRIPT).stdout.strip()
    # A moment of the job's life: from before its agents are up to just before its end.
    lines = dice.randrange(25)
    until(lambda: run("job", "logs", name, "--rank", 0).stdout.count("\n") >= lines)
    killed = victims(chaos_home, name, what, dice)
    assert killed
    kill(killed)
    job = json.loads(run("job", "wait", name, "--json").stdout)
    until(lambda: of_job(chaos_home, name) == [], seconds=5)
    for rank in range(RANKS):
        printed = run("job", "logs", name, "--rank", rank).stdout.splitlines()
        assert printed == [f"{rank} {i}" for i in range(1, len(printed) + 1)]
        assert job["status"] != "Completed" or len(printed) == LINES
    if what == "server":
        assert (job["status"], job["attempts"]) == ("Completed", 1)
    elif what != "rank":
        assert (job["status"], job["error"]["reason"]) == ("Failed", "NODE_LOST")
        assert job["error"]["blame"] == "infrastructure"
    elif job["status"] != "Completed":  # on a busy machine it may have ended just before
        assert (job["status"], job["error"]["reason"]) == ("Failed", "RANK_KILLED")
        assert job["exit_code"] == 137


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "what"),
    [
        pytest.param(signal.SIGKILL, "agent", marks=pytest.mark.end_to_end),
        (signal.SIGTERM, "keeper"),
    ],
)
def test_a_lost_or_preempted_gang_starts_again_elsewhere(run, chaos_home, number, what) -> None:
    """And does not eat the user's attempts."""
    script = "echo launch; test $ALLRANKS_ATTEMPT = 2 || sleep 60"
    words = ("run", "--detach", "-n", 2, "--max-attempts", 2, "--", "bash", "-c", script)
    name = run(*words).stdout.strip()
    until(lambda: run("job", "logs", name).stdout.count("launch") == 2)
    (victim,) = victims(chaos_home, name, what, random.Random(1))
    os.kill(victim, number)
    job = json.loads(run("job", "wait", name, "--json").stdout)
    assert (job["status"], job["attempts"], job["launches"]) == ("Completed", 2, 2)
    events = json.loads(run("job", "events", name, "--json").stdout)
    reasons = [e["data"]["reason"] for e in events if e["kind"] == "closing"]
    expected = "NODE_LOST" if number is signal.SIGKILL else "PREEMPTED"
    assert reasons == [expected, expected, "DONE"] or reasons == [expected, "DONE"]
