"""`python -m tests.chaos.holds ROUNDS [FIRST_SEED]`: rounds of held jobs in which the server, an
agent, a keeper, a debugger or a rank is killed. After each nothing of the job is left.

Not in the suite: a round takes seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import sys
import tempfile
import time
import traceback
from pathlib import Path

import psutil

import allranks as sdk
from allranks.channel import Lost
from allranks.errors import AllranksError, Unreachable
from allranks.sdk.jobs.channel import Channel
from tests.chaos.test_kills import is_agent, kill, of_launch, victims
from tests.support import environment, kill_server, leave_nothing, until

FAILURES = {"exception": "[0][9]", "exit": "sys.exit(3)", "crash": "os.kill(os.getpid(), 11)"}
SCRIPT = """\
import os, subprocess, sys, time
subprocess.Popen(["setsid", "sleep", "600"])
if os.environ["RANK"] == "1":
    {failure}
time.sleep(600)
"""
WAYS = ("release", "retry", "cancel", "preempt", "time", "agent", "keeper", "server", "rank")
ENDS = ("RANK_EXITED", "RANK_KILLED")


def main(rounds: int, first: int) -> int:
    bad = 0
    with tempfile.TemporaryDirectory(prefix="allranks-holds-") as folder:
        home = Path(folder, "home")
        os.environ.update(environment(home))
        try:
            for seed in range(first, first + rounds):
                began = time.monotonic()
                try:
                    what = _round(home, Path(folder), random.Random(f"hold {seed}"), f"h{seed}")
                except BaseException as error:
                    traceback.print_exc()
                    bad, what = bad + 1, f"WRONG {error!r}"
                    if isinstance(error, KeyboardInterrupt):
                        raise
                print(f"{seed}: {what} ({time.monotonic() - began:.1f} s)", flush=True)
        finally:
            leave_nothing(home)
    print(f"{rounds} rounds, {bad} wrong")
    return int(bad > 0)


def _round(home: Path, folder: Path, dice: random.Random, name: str) -> str:
    failure, way, debugs = dice.choice([*FAILURES]), dice.choice(WAYS), dice.random() < 0.6
    code = folder / name
    code.mkdir()
    (code / "held.py").write_text(SCRIPT.format(failure=FAILURES[failure]))
    job = sdk.command(
        command=f"{sys.executable} held.py",
        code=code,
        name=name,
        instance_count=2,
        distribution={"type": "pytorch", "process_count_per_instance": 1},
        on_failure={"hold": 3.0 if way == "time" else 600.0},
    )
    client = sdk.Client()
    job = client.jobs.create_or_update(job)
    until(lambda: "held until" in (job.refresh().status_reason or ""), 60)
    channel = None
    if debugs and failure != "crash" and way != "time":
        channel = _debugger(name)
    time.sleep(dice.random() * 0.5)
    if channel is not None and dice.random() < 0.5:
        channel.connection.close()  # as if it were killed
        channel = None
    reason = _end(home, job, way, dice)
    try:
        job.wait(timeout=120)
    except AllranksError as error:
        raise AssertionError(f"{way}: {error.message}") from None
    for launch in (1, 2):
        until(lambda launch=launch: of_launch(home, name, launch) == [], 10)
        until(lambda launch=launch: not (home / "nodes" / f"{name}.{launch}").exists(), 10)
    error = job.refresh().error
    ended = "CANCELED" if job.status == "Canceled" else error["reason"]
    assert ended in reason, (way, failure, ended)
    if channel is not None:
        channel.connection.close()
    return f"{failure}, {way}{', debugger' if debugs else ''}: {ended}"


def _end(home: Path, job: sdk.Job, way: str, dice: random.Random) -> tuple[str, ...]:
    """Do that to the held job, and end it; return how it may have ended."""
    if way == "cancel":
        job.cancel()
        return ("CANCELED",)
    if way == "preempt":
        job.preempt(dice.choice([None, 0, 1]))
        return ENDS
    if way in ("agent", "keeper"):
        killed = victims(home, job.name, way, dice)
        while any("visit" in word for pid in killed for word in psutil.Process(pid).cmdline()):
            killed = victims(home, job.name, way, dice)  # a debugger's helper is no agent
        kill(killed)
        return (*ENDS, "NODE_LOST")
    if way == "server":
        kill_server(home)
    if way == "rank":
        everyone = [pid for pid in of_launch(home, job.name, 1) if not is_agent(pid)]
        kill([dice.choice(everyone)])
        time.sleep(0.2)
    if way == "retry":
        job.release(retry=True)
        until(lambda: job.refresh().attempts == 2 and "held" in (job.status_reason or ""), 60)
    if way != "time":
        until(lambda: _released(job))
    return ENDS


def _released(job: sdk.Job) -> bool:
    """A server that was killed may break the connection."""
    try:
        job.release()
    except Unreachable:
        return False
    return True


def _debugger(name: str) -> Channel:
    channel = Channel(name, None, None, terminal=True, debug=0)
    text = b""
    with contextlib.suppress(Lost):
        while b"(Pdb)" not in text:
            assert select.select([channel.connection], [], [], 60)[0]
            text += b"".join(data for _, data in channel.connection.receive())
    assert b"(Pdb)" in text, text
    return channel


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0))
