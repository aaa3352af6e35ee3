"""`allranks server restart`: the server becomes another process image, or process; jobs go on."""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from allranks import file_locks
from allranks.server import handover
from allranks.settings import Home
from tests.support import CLI, Allranks, answer, environment, until

SCRIPT = """
import pathlib, sys, time
for number in range(100):
    print("before", number, flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.05)
for number in range(100):
    print("after", number, flush=True)
"""
LINES = "".join(f"{word} {number}\n" for word in ("before", "after") for number in range(100))


@pytest.fixture
def go(allranks: Allranks, code: Path, tmp_path: Path) -> Iterator[Path]:
    """A job `runs`, which ends when this file is there."""
    (code / "train.py").write_text(SCRIPT)
    file = tmp_path / "go"
    done = allranks("run", "--detach", "--name", "runs", "--", "python", "train.py", file)
    assert done.returncode == 0, done.stderr
    until(lambda: "before 99" in allranks("job", "logs", "runs").stdout)
    yield file
    file.touch()


def follower(allranks: Allranks, *words: str) -> tuple[threading.Thread, list[object]]:
    """A command that waits."""
    results: list[object] = []
    thread = threading.Thread(target=lambda: results.append(allranks(*words)))
    thread.start()
    return thread, results


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
def test_jobs_and_who_waits_for_them_go_on(allranks: Allranks, home: Path, go: Path, in_place):
    threads = [
        follower(allranks, "job", "stream", "runs"),
        follower(allranks, "job", "wait", "runs"),
    ]
    before = json.loads((home / "server.json").read_text())
    if not in_place:  # as a server of 0.1.0 writes it
        about = {key: value for key, value in before.items() if key != "started"}
        (home / "server.json").write_text(json.dumps(about))
    check = answer(allranks, "server", "restart", "--check")
    assert check["ok"]
    assert json.loads((home / "server.json").read_text())["pid"] == before["pid"]
    server = answer(allranks, "server", "restart")
    assert (server["pid"] == before["pid"]) is in_place
    assert server["url"] == before["url"]
    assert server["backup"] is None
    now = json.loads((home / "server.json").read_text())
    assert now["started"] > before["started"]
    children = psutil.Process(server["pid"]).children
    until(lambda: psutil.STATUS_ZOMBIE not in [child.status() for child in children()])
    go.touch()
    for thread, results in threads:
        thread.join(60)
        assert [done.returncode for done in results] == [0], results
    assert threads[0][1][0].stdout == LINES
    job = answer(allranks, "job", "show", "runs")
    assert (job["status"], job["attempts"]) == ("Completed", 1)


@pytest.mark.slow
def test_a_next_version_that_cannot_be_started(allranks: Allranks, home: Path, go: Path):
    here = Home(home)
    before = json.loads(here.server.read_text())

    def send(number: signal.Signals) -> None:
        os.kill(before["pid"], number)

    # The Python is gone: the server becomes itself.
    handover.request(here, str(home / "none"), send)
    until(lambda: json.loads(here.server.read_text())["started"] != before["started"])
    assert answer(allranks, "job", "show", "runs")["status"] == "Running"
    assert answer(allranks, "server", "status")["pid"] == before["pid"]
    # It ends at once: the next command starts a server, and the job goes on.
    handover.request(here, "/bin/false", send)
    until(lambda: not file_locks.is_held(here.lock))
    assert answer(allranks, "job", "show", "runs")["status"] == "Running"


@pytest.mark.medium
def test_one_at_a_time(allranks: Allranks, home: Path):
    assert allranks("server", "start").returncode == 0
    lock = file_locks.take(home / "restart.lock")
    assert lock is not None
    try:
        done = allranks("server", "restart")
        assert (done.returncode, done.stderr.splitlines()[0][:6]) == (2, "error:"), done.stderr
        assert "restarted already" in done.stderr
    finally:
        os.close(lock)


@pytest.mark.medium
def test_without_a_server_it_starts_one(allranks: Allranks, home: Path):
    assert answer(allranks, "server", "restart")["before"] is None
    assert answer(allranks, "server", "status")["running"]


@pytest.mark.slow
def test_a_server_in_the_foreground_stays_there(allranks: Allranks, home: Path):
    words = [sys.executable, "-P", "-c", CLI, "server", "run"]
    process = subprocess.Popen(words, env=environment(home), stderr=subprocess.PIPE, text=True)
    try:
        until(lambda: file_locks.is_held(home / "server.lock"))
        assert answer(allranks, "server", "restart")["pid"] == process.pid
    finally:
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Traceback" not in output
