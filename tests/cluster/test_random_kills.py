"""Power, network or an agent lost at a random moment of a job's life on a cluster."""

from __future__ import annotations

import contextlib
import json
import random
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.conftest import Cluster
from tests.cluster.test_slurm import ended, events, ready, show, slurm
from tests.support import Allranks, until

__all__ = ["slurm"]

pytestmark = [pytest.mark.slow, pytest.mark.cluster, pytest.mark.timeout(800)]

LINES = 120
# After each line, on the disk: how many of them there are.
SCRIPT = f"""
for i in {{1..{LINES}}}; do
    echo $RANK $i
    echo $i >outputs/$ALLRANKS_ATTEMPT-$RANK
    sleep 0.05
done
"""
WITHIN = 30.0
SEEDS = [pytest.param(n, marks=[pytest.mark.heavy] if n >= 4 else []) for n in range(20)]


@pytest.mark.parametrize("seed", SEEDS)
def test_kill(slurm: Allranks, cluster: Cluster, home: Path, seed: int):
    dice = random.Random(seed)
    what = ("kill-host", "cut", "agent", "keeper")[seed % 4]
    options = ("--detach", "--name", "job", "-n", 2, "--max-attempts", 2)
    began = time.monotonic()
    done = slurm("run", *options, "--", "bash", "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    moment = dice.uniform(0, 6)
    until(lambda: time.monotonic() - began > moment)
    killed = kill(cluster, home, what, dice)
    at = time.time()
    job = ended(slurm, "job", seconds=120)
    told = {name: events(slurm, "job", name) for name in ("go", "submitted", "seen", "closing")}
    print(seed, what, killed, f"{moment:.1f} s", job["status"], job["attempts"], job["error"])
    assert (job["status"], job["error"]) == ("Completed", None)
    for end in told["closing"][:-1]:
        # When Slurm is first to notice, agents on other hosts are told to go before it says why.
        assert end["data"]["purpose"] == "relaunch"
        assert end["data"]["reason"] in ("NODE_LOST", "PREEMPTED")
    if job["launches"] > 1:
        again = next(e for e in told["go"] if e["launch"] == job["launches"])
        print("again after", seconds(again) - at)
        assert seconds(again) - at < WITHIN
        never_two(told)
    lines_are_whole(slurm, job)
    ready(cluster)
    until(lambda: not alive(home), seconds=60)


def kill(cluster: Cluster, home: Path, what: str, dice: random.Random) -> object:
    """Of the hosts that Slurm fills first: one of them has a node of the job, or is to have it."""
    if what in ("kill-host", "cut"):
        host = dice.choice(["n1", "n2"])
        cluster(what, host)
        return host
    until(lambda: agents(home), seconds=20)
    victim = dice.choice(agents(home))
    with contextlib.suppress(psutil.NoSuchProcess):
        victim = victim.parent() if what == "keeper" else victim
        victim.kill()
    return victim.pid


def agents(home: Path) -> list[psutil.Process]:
    """Not their keepers, which are their parents."""
    found = []
    for process in alive(home):
        with contextlib.suppress(psutil.Error):
            above = process.parent()
            # Not the shell, which has the same words behind its own.
            ours = (
                above is not None and above.name() != "bash" and "allranks.agent" in above.cmdline()
            )
            if ours and "allranks.agent" in process.cmdline():
                found.append(process)
    return found


def alive(home: Path) -> list[psutil.Process]:
    """What runs on any host and belongs to a job of this home."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("ALLRANKS_AGENT_DIR", "").startswith(str(home)):
                found.append(process)
    return found


def never_two(told: dict[str, list[Any]]) -> None:
    """The next gang was asked for only after Slurm had said that the one before is gone."""
    for submitted in told["submitted"][1:]:
        before = [e for e in told["seen"] if e["launch"] == submitted["launch"] - 1]
        assert before
        assert before[-1]["data"]["state"] == "gone"
        assert seconds(before[-1]) <= seconds(submitted)


def lines_are_whole(slurm: Allranks, job: Any) -> None:
    """Every line that was on a disk is in the log, once and in order."""
    for count in Path(job["folder"], "artifacts", "outputs").iterdir():
        attempt, rank = count.name.split("-")
        printed = slurm("job", "logs", "job", "--attempt", attempt, "--rank", rank).stdout
        lines = printed.splitlines()
        assert lines == [f"{rank} {i}" for i in range(1, len(lines) + 1)]
        # A host may lose its power between writing a count and its content.
        assert len(lines) >= int(count.read_text().strip() or 0)


def seconds(event: Any) -> float:
    return datetime.fromisoformat(event["at"]).timestamp()


def test_the_job_shows_what_happened(slurm: Allranks, cluster: Cluster, home: Path):
    """Not restarted, it names the host that was lost."""
    done = slurm("run", "--detach", "--name", "job", "-n", 2, "--", "bash", "-c", SCRIPT)
    assert done.returncode == 0, done.stderr
    until(lambda: show(slurm, "job")["status"] == "Running")
    cluster("cut", "n2")
    job = ended(slurm, "job", seconds=60)
    assert job["error"]["message"].startswith("node 1 (n2) was lost")
    assert json.loads(slurm("job", "show", "job", "--json").stdout)["exit_code"] is None
    ready(cluster)
    until(lambda: not alive(home), seconds=60)


def test_an_agent_that_dies_before_its_first_word_is_missed(
    slurm: Allranks, cluster: Cluster, home: Path
):
    """Nobody waits two minutes for its hello: its shell says that it has ended."""
    slurm("server", "stop")  # so that no agent can be heard at first
    options = ("--detach", "--name", "mute", "-n", 2, "--max-attempts", 2)
    slurm("run", *options, "--", "bash", "-c", SCRIPT)
    server = json.loads(slurm("server", "status", "--json").stdout)["pid"]
    until(lambda: len(alive(home)) >= 2, seconds=20)
    psutil.Process(server).suspend()
    try:
        victims = [p for p in alive(home) if p.environ()["ALLRANKS_AGENT_DIR"].endswith("/1")]
        for victim in victims:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "allranks.agent" in victim.cmdline():
                    victim.kill()
    finally:
        psutil.Process(server).resume()
    job = ended(slurm, "mute", seconds=60)
    assert (job["status"], job["error"]) == ("Completed", None)
