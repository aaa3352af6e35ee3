"""`allranks job profile`: what real ranks spend their time on, and who cannot be profiled."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allranks.http_client import Client
from tests.support import CLI, Allranks, environment, until

pytestmark = pytest.mark.slow

# Rank 0 has a second thread and runs in asyncio, rank 1 is stopped.
SCRIPT = """\
import asyncio, os, signal, threading, time
rank = int(os.environ["RANK"])
def decode(): time.sleep(600)
async def load_batch():
    while True:
        end = time.monotonic() + 0.05
        while time.monotonic() < end: sum(range(100))
        await asyncio.sleep(0)
print("up", flush=True)
if rank == 1: os.kill(os.getpid(), signal.SIGSTOP)
threading.Thread(target=decode, name="decoder", daemon=True).start()
asyncio.run(load_batch())
"""


def profile(allranks: Allranks, name: str, *words: object) -> Any:
    done = allranks("job", "profile", name, "--json", *words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_what_ranks_do_is_recorded_judged_and_kept(shared: Allranks, shared_home: Path, code: Path):
    (code / "train.py").write_text(SCRIPT)
    words = ("-p", 2, "--detach", "--name", "profiled", "--", "python", "train.py")
    assert shared("run", *words).returncode == 0
    until(lambda: shared("job", "logs", "profiled").stdout.count("up") == 2)
    answer = profile(shared, "profiled", "--seconds", 1)
    assert answer["missing"] == [{"rank": 1, "node": 0, "why": "it is stopped by a signal"}]
    (rank,) = answer["verdict"]["ranks"]
    assert rank["shares"]["input"] > 0.5
    assert rank["places"]["input"].startswith("load_batch (train.py:")
    folder = Path(answer["folder"])
    threads = json.loads((folder / "speedscope.json").read_text())
    names = {frame["name"] for frame in threads["shared"]["frames"]}
    assert {"decode", "load_batch", "task Task-1"} <= names
    profiles = {one["name"]: len(one["samples"]) for one in threads["profiles"]}
    assert profiles.keys() == {"rank 0, MainThread", "rank 0, decoder"}
    trace = json.loads((folder / "perfetto.json").read_text())["traceEvents"]
    assert any(event["name"] == "load_batch" and event["dur"] > 0 for event in trace[3:])
    assert "load_batch" in (folder / "flame.html").read_text()
    memory = profile(shared, "profiled", "--kind", "memory", "--ranks", "0", "--seconds", 0.5)
    assert [one["rank"] for one in memory["memory"]] == [0]
    # Ctrl-C ends it in the ranks, too: the next one does not wait for its minute.
    argv = [sys.executable, "-c", CLI, "job", "profile", "profiled", "--seconds", "60"]
    env = environment(shared_home)
    server = json.loads(shared("server", "status", "--json").stdout)
    client = Client(server["url"], (shared_home / "token").read_text().strip())
    with client, subprocess.Popen(argv, env=env, stderr=subprocess.DEVNULL) as begun:
        until(lambda: client.json("DELETE", "/api/v1/jobs/profiled/profile")["stopped"])
        assert begun.wait() == 0
    with subprocess.Popen(argv, env=env, stderr=subprocess.PIPE) as begun:
        assert begun.stderr is not None
        begun.stderr.readline()
        begun.send_signal(signal.SIGINT)
        assert begun.wait() == 130
    words = ("--kind", "memory", "--ranks", "0", "--seconds", 0.5)
    until(lambda: shared("job", "profile", "profiled", *words).returncode == 0)
    unknown = shared("job", "profile", "profiled", "--ranks", 7)
    assert "error: profiled has no rank 7\n" in unknown.stderr
    # Nothing is left in the rank: it answers again, and its stacks show no thread of ours.
    stacks = json.loads(shared("job", "stacks", "profiled", "--json").stdout)
    threads = [one["threads"] for one in stacks["processes"] if one["rank"] == 0]
    assert "allranks_" not in json.dumps(threads)
    assert shared("job", "cancel", "profiled").returncode == 0
    shared("job", "wait", "profiled")
    assert "error: profiled has ended\n" in shared("job", "profile", "profiled").stderr
    kept = profile(shared, "profiled", "--last")
    assert kept["kind"] == "memory"
    assert "profile of" in shared("report", "profiled").stdout


def test_ranks_without_python_say_so(shared: Allranks):
    words = ("--detach", "--name", "no-python", "--", "sleep", 600)
    assert shared("run", *words).returncode == 0
    until(lambda: json.loads(shared("job", "show", "no-python", "--json").stdout)["started_at"])
    refused = shared("job", "profile", "no-python", "--seconds", 0.5)
    assert refused.returncode != 0
    assert "error: no rank of no-python runs Python that can be profiled\n" in refused.stderr
    assert "no profile of no-python" in shared("job", "profile", "no-python", "--last").stderr
    shared("job", "cancel", "no-python")


# Without `threading`: the first thread has to stay the first one, and the script has to end.
PLAIN = """\
import os, time
print("up", flush=True)
while not os.path.exists("go"): time.sleep(0.05)
import threading
print(threading.current_thread() is threading.main_thread(), flush=True)
"""


def test_a_script_does_not_notice(shared: Allranks, code: Path):
    (code / "train.py").write_text(PLAIN)
    words = ("--detach", "--name", "unprofiled", "--in-place", "--", "python", "train.py")
    assert shared("run", *words).returncode == 0
    until(lambda: "up" in shared("job", "logs", "unprofiled").stdout)
    answer = profile(shared, "unprofiled", "--seconds", 1)
    assert answer["missing"] == []
    assert answer["verdict"]["ranks"][0]["shares"]["other"] > 0.9
    assert answer["verdict"]["kind"] == "waiting"
    assert "time.sleep(0.05)` (train.py:3)" in answer["verdict"]["message"]
    (code / "go").touch()
    assert shared("job", "wait", "unprofiled", timeout=60).returncode == 0
    assert shared("job", "logs", "unprofiled").stdout.split() == ["up", "True"]
